"""What Django calls: `manage.py migrate` and `flush`, a changed setting, and `manage.py check`.

`manage.py migrate` also makes Watchbill's schema, and so does the making of a test database. There the schema is marked
as a test's: its clock can be moved, and it is emptied whenever Django flushes its own tables, as TransactionTestCase
does after each test.
"""

from __future__ import annotations

import sys
from typing import Any

from django.core import checks

from watchbill.errors import WatchbillError
from watchbill.integrations.django import configuration
from watchbill.integrations.django.application import app, is_under_test
from watchbill.settings import Settings


def after_migrate(using: str, verbosity: int = 1, **more: Any) -> None:
    """Called after `migrate`, with `plan` in `more`, and after `flush`, without it."""
    if using != configuration.alias() or not configuration.option("MIGRATE"):
        return
    app.reload_settings()  # the App may have read the address of the database that the test database replaces
    if "plan" in more:
        _migrate(verbosity, more.get("stdout") or sys.stdout)
    elif is_under_test():
        from watchbill.testing.database import empty_schema

        empty_schema(app.database_url, app.settings.schema)
    app.reload_settings()  # Django may copy this database for parallel tests: each process reads its own address


def after_setting_changed(setting: str, **_: Any) -> None:
    """Called when a test overrides a setting, and when it ends."""
    if setting in ("WATCHBILL", "DATABASES"):
        app.reload_settings()


def check_settings(**_more: Any) -> list[Any]:
    """Checks, for `manage.py check`, that WATCHBILL can be read and leads to a PostgreSQL. Opens no connection."""
    try:
        Settings.load(**configuration.given())
    except WatchbillError as error:
        return [checks.Error(error.message, hint=error.hint, id="watchbill.E001")]
    return []


def _migrate(verbosity: int, stdout: Any) -> None:
    settings = app.settings
    url = settings.listen_url or app.database_url
    if is_under_test():
        from watchbill.testing.database import prepare_schema

        prepare_schema(url, settings.schema)
        return
    from watchbill.store.install import install

    status = install(url, settings.schema, settings.jcron_schema)
    if verbosity >= 1:
        stdout.write(f"  Watchbill: schema {status.schema} is at version {status.version}\n")

"""Functions that Django calls: after `manage.py migrate` and `flush`, after a setting was changed, and for `manage.py
check`.

`manage.py migrate` also makes Watchbill's schema, and so does Django when it makes a test database. There the schema is
marked as a test schema: its clock can be moved, and it is emptied whenever Django flushes its own tables, as
TransactionTestCase does after each test.
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
    """Migrates Watchbill's schema after Django's `migrate`, and empties a test schema after `flush`. Django calls this
    with `plan` in `more` after `migrate`, and without it after `flush`."""
    if using != configuration.find_alias() or not configuration.read_option("MIGRATE"):
        return
    app.reload_settings()  # the App may still have the address of the project's database, not of the test database
    if "plan" in more:
        _migrate_schema(verbosity, more.get("stdout") or sys.stdout)
    elif is_under_test():
        from watchbill.testing.database import empty_schema

        empty_schema(app.database_url, app.settings.schema)
    app.reload_settings()  # Django may copy the test database for parallel tests, and each process must use its copy


def after_setting_changed(setting: str, **_: Any) -> None:
    """Reads Watchbill's settings again if they have changed. Django calls this when a test overrides a setting, and
    when the override ends."""
    if setting in ("WATCHBILL", "DATABASES"):
        app.reload_settings()


def check_settings(**_more: Any) -> list[Any]:
    """Checks, for `manage.py check`, that WATCHBILL can be read and leads to a PostgreSQL. Opens no connection."""
    try:
        Settings.load(**configuration.read_given_settings())
    except WatchbillError as error:
        return [checks.Error(error.message, hint=error.hint, id="watchbill.E001")]
    return []


def _migrate_schema(verbosity: int, stdout: Any) -> None:
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

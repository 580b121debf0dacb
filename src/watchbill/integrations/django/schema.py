"""Our schema beside Django's tables: `manage.py migrate` brings both, and so does the making of a test database.

In a test database the schema is marked as a test's: its clock can be moved and it may be emptied, which happens
whenever Django flushes its own tables, as TransactionTestCase does after each test.
"""

from __future__ import annotations

import sys
from typing import Any

from watchbill.integrations.django import configuration
from watchbill.integrations.django.application import app
from watchbill.integrations.django.connections import under_test

_LOOK_AGAIN = ("WATCHBILL", "DATABASES")


def after_migrate(using: str, verbosity: int = 1, **more: Any) -> None:
    """Told by `migrate`, and without a plan by `flush`."""
    if using != configuration.alias() or not configuration.option("MIGRATE"):
        return
    app.forget()  # a test database has taken the place of another
    if "plan" in more:
        _bring(verbosity, more.get("stdout") or sys.stdout)
    elif under_test():
        _empty()
    app.forget()  # and processes that run tests side by side will have copies of it


def after_setting_changed(setting: str, **_: Any) -> None:
    """A test has overridden it, or its end has put it back."""
    if setting in _LOOK_AGAIN:
        app.forget()


def _bring(verbosity: int, stdout: Any) -> None:
    settings = app.settings
    url = settings.listen_url or app.database_url
    if under_test():
        from watchbill.testing.schema import ready_schema

        ready_schema(url, settings.schema)
        return
    from watchbill.store.install import install

    status = install(url, settings.schema, settings.jcron_schema)
    if verbosity >= 1:
        stdout.write(f"  Watchbill: schema {status.schema} is at version {status.version}\n")


def _empty() -> None:
    from watchbill.testing.schema import empty_schema

    empty_schema(app.database_url, app.settings.schema)

"""What `manage.py check` says of Watchbill."""

from __future__ import annotations

from typing import Any

from django.core import checks

from watchbill.errors import WatchbillError
from watchbill.integrations.django import configuration
from watchbill.settings import Settings


def register() -> None:
    checks.register(check_settings)


def check_settings(**_more: Any) -> list[Any]:
    """That the setting WATCHBILL can be read, and leads to a PostgreSQL. Nothing is opened."""
    try:
        Settings.load(**configuration.given())
    except WatchbillError as error:
        return [checks.Error(error.message, hint=error.hint, id="watchbill.E001")]
    return []

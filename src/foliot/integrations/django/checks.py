"""What `manage.py check` says of Foliot."""

from __future__ import annotations

from typing import Any

from django.core import checks

from foliot.errors import FoliotError
from foliot.integrations.django import configuration
from foliot.settings import Settings


def register() -> None:
    checks.register(check_settings)


def check_settings(**_more: Any) -> list[Any]:
    """That the setting FOLIOT can be read, and leads to a PostgreSQL. Nothing is opened."""
    try:
        Settings.load(**configuration.given())
    except FoliotError as error:
        return [checks.Error(error.message, hint=error.hint, id="foliot.E001")]
    return []

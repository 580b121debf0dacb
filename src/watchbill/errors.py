"""What Watchbill raises on purpose. The message says what was wrong and where; `hint` says what would be right."""

from __future__ import annotations


class WatchbillError(Exception):
    """The root of all of them: catch this to catch whatever Watchbill raises on purpose."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class SettingsError(WatchbillError):
    """A setting that does not exist or cannot have that value."""

    exit_code = 2


class NoDatabase(WatchbillError):
    """No database address is known, or the one that is known does not answer."""

    exit_code = 3


class EmbeddedError(NoDatabase):
    """The embedded PostgreSQL cannot be started or used."""


class SchemaError(WatchbillError):
    """The schema is missing, or too old or too new for this version of Watchbill."""

    exit_code = 3


class AppNotFound(WatchbillError):
    """No application was found where one was looked for."""

    exit_code = 4

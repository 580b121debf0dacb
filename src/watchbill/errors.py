"""The errors that Watchbill raises. The message says what is wrong and where; `hint` says what would be right."""

from __future__ import annotations

import re

_COMMAND = re.compile(r"(?<![\w./:-])(?<!manage\.py )watchbill (?=[a-z])")
_command = "watchbill"


def set_command(command: str) -> None:
    """Sets how people call the command `watchbill` in this project, such as `manage.py watchbill`."""
    global _command
    _command = command


def name_commands(hint: str) -> str:
    """Replaces `watchbill` in the commands of a hint by the command that people type in this project."""
    return hint if _command == "watchbill" else _COMMAND.sub(f"{_command} ", hint)


def name_quoted_commands(text: str) -> str:
    """Does what name_commands does, but only between backticks: elsewhere in a text `watchbill` may be a schema."""
    return re.sub("`[^`]*`", lambda quoted: name_commands(quoted[0]), text)


class WatchbillError(Exception):
    """The base class of all errors that Watchbill raises."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = None if hint is None else name_commands(hint)

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class SettingsError(WatchbillError):
    """A setting does not exist or cannot have this value."""

    exit_code = 2


class NoDatabase(WatchbillError):
    """No database address is known, or the database does not answer.

    `may_pass` is false if waiting cannot help: the password is refused, for example, or the host name is unknown.
    """

    exit_code = 3
    may_pass = True


class EmbeddedError(NoDatabase):
    """The embedded PostgreSQL cannot be started or used."""


class SchemaError(WatchbillError):
    """The schema is missing, or too old or too new for this version of Watchbill."""

    exit_code = 3


class AppNotFound(WatchbillError):
    """No application was found."""

    exit_code = 4

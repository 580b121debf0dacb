"""The errors of `watchbill.cron`: an invalid pattern, an invalid instant."""

from __future__ import annotations

from watchbill.errors import WatchbillError

_EXCERPT = 72


class InvalidPattern(WatchbillError, ValueError):
    """A pattern is invalid. The error names the field, the position and, if there is a good guess, a correction."""

    exit_code = 2

    def __init__(
        self,
        reason: str,
        pattern: str = "",
        position: int = 0,
        length: int = 1,
        field: str = "pattern",
        suggestion: str | None = None,
    ) -> None:
        hint = f"Did you mean {suggestion}?" if suggestion else None
        super().__init__(f"{field}: {reason}\n{_underline(pattern, position, length)}", hint=hint)
        self.reason = reason
        self.pattern = pattern
        self.position = position
        self.field = field
        self.suggestion = suggestion


class InvalidInstant(WatchbillError, ValueError):
    """A datetime without a zone, or one outside the years 1 to 9999 in UTC."""

    exit_code = 2


def shorten_for_message(text: str) -> str:
    """Shortens a piece of a pattern for a message to 40 characters, and escapes control characters in it."""
    return repr(text if len(text) <= 40 else text[:40] + "...")


def _underline(pattern: str, position: int, length: int) -> str:
    start = max(0, position - _EXCERPT // 2)
    excerpt = pattern[start : start + _EXCERPT]
    line = "".join(char if char.isprintable() and char.isascii() else "?" for char in excerpt)
    marks = min(max(length, 1), _EXCERPT - (position - start))
    return f"  {line}\n  {' ' * (position - start)}{'^' * marks}"

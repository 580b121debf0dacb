"""What `watchbill.cron` raises: a pattern that is not one, an instant that cannot be placed."""

from __future__ import annotations

from watchbill.errors import WatchbillError

_EXCERPT = 72


class InvalidPattern(WatchbillError, ValueError):
    """A text that is no schedule: says in which field, at which position, and what was perhaps meant."""

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
        super().__init__(f"{field}: {reason}\n{_underlined(pattern, position, length)}", hint=hint)
        self.reason = reason
        self.pattern = pattern
        self.position = position
        self.field = field
        self.suggestion = suggestion


class InvalidInstant(WatchbillError, ValueError):
    """A datetime without a zone, or one outside the years 1 to 9999 in UTC."""

    exit_code = 2


def shown(text: str) -> str:
    """A piece of a pattern inside a message: bounded, and harmless on a terminal."""
    return repr(text if len(text) <= 40 else text[:40] + "...")


def _underlined(pattern: str, position: int, length: int) -> str:
    start = max(0, position - _EXCERPT // 2)
    excerpt = pattern[start : start + _EXCERPT]
    line = "".join(char if char.isprintable() and char.isascii() else "?" for char in excerpt)
    marks = min(max(length, 1), _EXCERPT - (position - start))
    return f"  {line}\n  {' ' * (position - start)}{'^' * marks}"

"""Hides values before a template, an answer, an event or an export sees them.

A path names a value: `payload.password`, `result.card.number`; `*` stands for one or more names, so `*.token` hides
every token; `mail.send:payload.to` holds for jobs of that type only. An item of a list has the path of its list.
Patterns are regular expressions for texts: messages of errors, logs, and texts in payloads and results.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

HIDDEN = "[hidden]"


@dataclass(frozen=True)
class _Path:
    type: str | None
    names: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> _Path:
        type_, separator, path = text.rpartition(":")
        names = tuple(path.split("."))
        if not all(names) or (separator and not type_):
            raise ValueError(f"{text!r} is not a path: write payload.password, *.token or mail.send:payload.to")
        return cls(type_ or None, names)

    def may_hold_for(self, type: str | None) -> bool:
        return self.type is None or type is None or self.type == type


def _matches(pattern: Sequence[str], path: Sequence[str]) -> bool:
    if not pattern or not path:
        return not pattern and not path
    if pattern[0] == "*":
        return any(_matches(pattern[1:], path[skipped:]) for skipped in range(1, len(path) + 1))
    return pattern[0] == path[0] and _matches(pattern[1:], path[1:])


@dataclass(frozen=True)
class Redaction:
    """What an installation hides."""

    paths: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()

    @cached_property
    def _paths(self) -> list[_Path]:
        return [_Path.read(path) for path in self.paths]

    @cached_property
    def _patterns(self) -> list[re.Pattern[str]]:
        return [re.compile(pattern) for pattern in self.patterns]

    def check(self) -> None:
        """Raises ValueError for a path or a pattern that cannot be read."""
        try:
            _ = self._paths, self._patterns
        except re.error as error:
            raise ValueError(f"a pattern of redact_text is invalid: {error}") from None

    def hide(self, root: str, value: Any, *, type: str | None) -> Any:
        """The value without what is hidden. `root` is payload, result, progress, meta or error."""
        paths = [each.names for each in self._paths if each.may_hold_for(type)]
        if not paths and not self._patterns:
            return value
        return self._hide(value, (root,), paths)

    def hide_error(self, error: Any, *, type: str | None) -> Any:
        """An error as it is stored with an attempt. A message that is hidden is not in its traceback either."""
        hidden = self.hide("error", error, type=type)
        if not isinstance(hidden, dict) or hidden.get("message") == error.get("message"):
            return hidden
        traceback = hidden.get("traceback")
        if isinstance(traceback, str):
            for line in filter(str.strip, str(error.get("message")).splitlines()):
                traceback = traceback.replace(line, HIDDEN)
            hidden["traceback"] = traceback
        return hidden

    def hide_text(self, text: str) -> str:
        for pattern in self._patterns:
            text = pattern.sub(HIDDEN, text)
        return text

    def hides(self, path: Sequence[str], *, types: Iterable[str] = ()) -> bool:
        """Whether a search on this path could reveal a hidden value: it is hidden, or in something hidden, or it
        contains something hidden. `types` are those that the search is limited to; none for any."""
        chosen: list[str | None] = [*types] or [None]
        return any(
            _matches(names, path[:length])
            for pattern in self._paths
            if any(map(pattern.may_hold_for, chosen))
            for names in _shortened(pattern.names, path)
            for length in range(1, len(path) + 1)
        )

    def _hide(self, value: Any, path: tuple[str, ...], paths: list[tuple[str, ...]]) -> Any:
        if any(_matches(names, path) for names in paths):
            return HIDDEN
        if isinstance(value, dict):
            return {name: self._hide(inner, (*path, str(name)), paths) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._hide(inner, path, paths) for inner in value]
        return self.hide_text(value) if isinstance(value, str) else value


def _shortened(names: tuple[str, ...], path: Sequence[str]) -> Iterable[tuple[str, ...]]:
    """The pattern, and its beginnings: a search for a whole object also compares what is hidden in it."""
    yield names
    for length in range(len(path), len(names)):
        yield names[:length]

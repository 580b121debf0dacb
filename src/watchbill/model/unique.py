"""Unique and Debounce: which jobs of a task are duplicates, and what an enqueue does with a duplicate."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from watchbill.model.durations import DURATION_WORDS, Duration, seconds
from watchbill.model.key_format import check_by
from watchbill.model.option_names import suggest_options

KeyFormat: TypeAlias = str | Callable[..., str]
Until: TypeAlias = Literal["started", "finished"]
OnDuplicate: TypeAlias = Literal["keep", "replace", "reject"]

# The parts of a key format: {{ and }} are braces, {name} is a parameter. The SQL function _render_key reads it
# likewise.
FORMAT_PARTS = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[^{}]+|[{}]")


@suggest_options
@dataclass(frozen=True, kw_only=True)
class Unique:
    """Allows at most one job of a task per key.

    `by`: the key, as a format over the arguments and `{tenant}`, or a function of the arguments; without `by`, all
    arguments are the key. `until`: how long a job has its key: until it has `started`, until it has `finished`, or for
    a duration from its enqueue. `on_duplicate`: `keep` returns the earlier job, `replace` gives the earlier job the new
    arguments and options, `reject` raises DuplicateJob."""

    by: KeyFormat | None = None
    until: Until | Duration = "started"
    on_duplicate: OnDuplicate = "keep"

    def __post_init__(self) -> None:
        check_by("Unique", self.by)
        if self.until not in get_args(Until):
            _check_duration("Unique", "until", self.until, f"'started', 'finished', or {DURATION_WORDS}")
        if self.on_duplicate not in get_args(OnDuplicate):
            raise ValueError(
                f"Unique(on_duplicate={self.on_duplicate!r}) is invalid: give 'keep', 'replace' or 'reject'"
            )
        if self.on_duplicate == "replace" and self.until != "started":
            raise ValueError(
                f"Unique(on_duplicate='replace', until={self.until!r}) is invalid: only a job that waits can be "
                "replaced, so until must be 'started'"
            )

    def columns(self) -> dict[str, Any]:
        """The fields of a new job."""
        until = self.until if self.until in get_args(Until) else f"{seconds(self.until)} seconds"
        return {"unique_by": self.by, "unique_until": until, "on_duplicate": self.on_duplicate}


@suggest_options
@dataclass(frozen=True, kw_only=True)
class Debounce:
    """Runs a job once for many calls with the same key: when no call has come for `wait`, and at the latest `max_wait`
    after the first call, with the arguments of the last call. `by` means the same as in Unique."""

    wait: Duration
    by: KeyFormat | None = None
    max_wait: Duration | None = None

    def __post_init__(self) -> None:
        check_by("Debounce", self.by)
        _check_duration("Debounce", "wait", self.wait, DURATION_WORDS)
        if self.max_wait is not None:
            _check_duration("Debounce", "max_wait", self.max_wait, DURATION_WORDS)
            if seconds(self.max_wait) < seconds(self.wait):
                raise ValueError(
                    f"Debounce(wait={self.wait!r}, max_wait={self.max_wait!r}) is invalid: max_wait must be at least "
                    "wait"
                )

    def columns(self) -> dict[str, Any]:
        """The fields of a new job."""
        longest = None if self.max_wait is None else seconds(self.max_wait)
        return {"unique_by": self.by, "debounce_wait": seconds(self.wait), "debounce_max": longest}


def format_parameters(formats: Iterable[object]) -> frozenset[str] | None:
    """The parameters that formats name and that functions among them take; None if a function takes any."""
    names: set[str] = set()
    for each in formats:
        if isinstance(each, str):
            names.update(found[1] for found in FORMAT_PARTS.finditer(each) if found[1] is not None)
        elif callable(each):
            taken = inspect.signature(each).parameters.values()
            if any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken):
                return None
            names.update(parameter.name for parameter in taken)
    return frozenset(names)


def _check_duration(name: str, option: str, value: Duration, words: str) -> None:
    try:
        is_valid = 0 < seconds(value) <= 86_400 * 365
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ValueError(f"{name}({option}={value!r}) is invalid: give {words}, at most 365 days")

"""Limits and rates: how many jobs of a key run at once, and how many start within a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from watchbill.model.durations import Duration, seconds
from watchbill.model.key_format import check_by
from watchbill.model.option_names import suggest_options

KeyFunction: TypeAlias = Callable[..., str]
By: TypeAlias = str | KeyFunction
WhenFull: TypeAlias = Literal["wait", "discard", "replace"]
WhenDead: TypeAlias = Literal["continue", "pause"]
LONGEST_NAME = 100  # characters that the name of a limit may have
RESERVED_NAMES = ("task", "tenant")  # Watchbill itself uses the limits task:TYPE and tenant:NAME
LARGEST_COUNT = 1_000_000_000
LONGEST_PER_SECONDS = 366 * 86_400.0


@suggest_options
@dataclass(frozen=True)
class Limit:
    """At most `count` jobs run at once, in the whole installation. Tasks that use the same `name` share the limit;
    without a name it is that of the task. `by` makes a key per value, and the limit holds for each key: a format such
    as `"{account}"`, or a function of the arguments.

    `when_full` decides what happens to a job that is to start while the limit is full: `wait` lets it wait; `discard`
    ends it as canceled; `replace` asks the running job to stop, cancels the jobs that wait, and starts the new job when
    the running one has ended.
    """

    count: int
    name: str | None = None
    by: By | None = None
    when_full: WhenFull = "wait"

    def __post_init__(self) -> None:
        _check_count("Limit", "count", self.count, least=0)
        _check_name("Limit", self.name)
        check_by("Limit", self.by)
        if self.when_full not in ("wait", "discard", "replace"):
            raise ValueError(f"Limit(when_full={self.when_full!r}) is invalid: it must be wait, discard or replace")

    @property
    def rule(self) -> dict[str, Any]:
        """The limit in the form that the SQL function declare_limits() takes."""
        return {"max": self.count} | ({} if self.when_full == "wait" else {"when_full": self.when_full})


@suggest_options
@dataclass(frozen=True)
class Rate:
    """Never more than `count` jobs start in any window of the length `per`, in the whole installation: with
    `Rate(10, per="1m")` ten jobs may start at once, and the eleventh when the first start is a minute old. Retries
    count. `evenly` spaces the starts. `name` and `by` mean the same as in `Limit`. A Limit and several Rates, each with
    another `per`, may share a name, and then all hold."""

    count: int
    per: Duration
    name: str | None = None
    by: By | None = None
    evenly: bool = False

    def __post_init__(self) -> None:
        _check_count("Rate", "count", self.count, least=1)
        _check_name("Rate", self.name)
        check_by("Rate", self.by)
        try:
            found = seconds(self.per)
        except ValueError as error:
            raise ValueError(f"Rate(per={self.per!r}) is invalid: {error}") from None
        if not 0 < found <= LONGEST_PER_SECONDS:
            raise ValueError(f"Rate(per={self.per!r}) is invalid: it must be more than 0, and at most 366 days")
        if type(self.evenly) is not bool:
            raise ValueError(f"Rate(evenly={self.evenly!r}) is invalid: it must be True or False")

    @property
    def rule(self) -> dict[str, Any]:
        return {"count": self.count, "per": seconds(self.per)} | ({"evenly": True} if self.evenly else {})


def _check_count(call: str, name: str, value: object, *, least: int) -> None:
    if type(value) is not int or not least <= value <= LARGEST_COUNT:
        raise ValueError(
            f"{call}({name}={value!r}) is invalid: it must be a whole number from {least} to {LARGEST_COUNT:,}"
        )


def _check_name(call: str, name: object) -> None:
    if name is not None and (not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME or set(name) & set(":{}")):
        shown = f"{name[:20]!r}..." if isinstance(name, str) and len(name) > LONGEST_NAME else repr(name)
        raise ValueError(
            f"{call}(name={shown}) is invalid: a name has 1 to {LONGEST_NAME} characters and no colon or brace; "
            "values belong into by="
        )
    if name in RESERVED_NAMES:
        raise ValueError(f"{call}(name={name!r}) is invalid: its keys would be those of tasks or tenants")

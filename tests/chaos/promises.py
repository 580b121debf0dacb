"""What the declarations of the chaos tasks promise, written down once more for the checker.

The checker must not learn the rules from the code that it checks, so nothing here is read from a task. Keys are formats
over the arguments that the producer has recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ACCOUNT_LIMIT = 1
API_LIMIT = 3  # at the beginning; operators change it
TASK_LIMIT = 2
FAIR_QUEUE_LIMIT = 3
BATCH_SIZE = 5
BATCH_LIMIT = 4
ORDERED_ATTEMPTS = 3
DEBOUNCE_SECONDS, DEBOUNCE_MAX_SECONDS = 0.3, 1.0


@dataclass(frozen=True)
class Rating:
    """Never more than `count` starts in any window of `per` seconds; `evenly`: a step apart."""

    key: str
    count: int
    per: float
    evenly: bool = False

    @property
    def step(self) -> int | None:
        """Microseconds between two starts that are spaced, rounded up: docs/howto/limits.md."""
        return -int(-self.per * 1_000_000 // (self.count - 1)) if self.evenly else None


CALLS = Rating("calls", count=20, per=2.0)
MANY_CALLS = Rating("calls", count=100, per=20.0)
VISITS = Rating("visits:{account}", count=6, per=2.0, evenly=True)


@dataclass(frozen=True)
class Promise:
    """Of the jobs of one task."""

    limits: tuple[tuple[str, int], ...] = ()  # at most so many jobs of a key at once
    rates: tuple[Rating, ...] = ()
    ordered_by: str | None = None
    pauses_when_dead: bool = False
    unique_by: str | None = None
    unique_until: str = "started"
    replaces: bool = False  # a duplicate gives the waiting job its arguments
    debounced: bool = False
    routed_by: str | None = None
    ends_when_full: str | None = None  # the word in the error of a job that a full limit has canceled
    batch: bool = False


ACCOUNT = ("account:{account}", ACCOUNT_LIMIT)
API = ("api", API_LIMIT)

PROMISES: dict[str, Promise] = {
    "limited": Promise(limits=(ACCOUNT, API)),
    "limited_write": Promise(limits=(ACCOUNT, ("task:limited_write", TASK_LIMIT))),
    "limited_myself": Promise(limits=(API,)),
    "rated": Promise(rates=(CALLS, MANY_CALLS)),
    "rated_limited": Promise(limits=(("visits:{account}", 1),), rates=(VISITS,)),
    "ordered": Promise(ordered_by="ordered:{key}"),
    "strict": Promise(ordered_by="strict:{key}", pauses_when_dead=True),
    "unique_waiting": Promise(unique_by="{account}"),
    "unique_unfinished": Promise(unique_by="{account}", unique_until="finished"),
    "replaced": Promise(unique_by="{doc}", replaces=True),
    "debounced": Promise(unique_by="{doc}", replaces=True, debounced=True),
    "batched": Promise(batch=True),
    "batch_write": Promise(batch=True),
    "batch_limited": Promise(limits=(("task:batch_limited", BATCH_LIMIT),), batch=True),
    "fair": Promise(limits=(ACCOUNT, ("queue:fair", FAIR_QUEUE_LIMIT))),
    "routed": Promise(routed_by="{customer}"),
    "routed_ordered": Promise(routed_by="{customer}", ordered_by="routed_ordered:{customer}"),
    "discarded": Promise(limits=(("discarded:{place}", 1),), ends_when_full="is full"),
    "superseded": Promise(limits=(("superseded:{place}", 1),), ends_when_full="replaced"),
}
NONE = Promise()


def promise_of(type: str) -> Promise:
    return PROMISES.get(type, NONE)


def is_doomed(type: str, arguments: dict[str, Any]) -> bool:
    """Whether a job of an ordered task fails more often than it has attempts."""
    return promise_of(type).ordered_by is not None and int(arguments.get("failures", 0)) >= ORDERED_ATTEMPTS

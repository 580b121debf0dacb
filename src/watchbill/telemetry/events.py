"""Events: told to observers in the process that made the transition, after commit, at most once.

An observer's own error is logged and never fails a job.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Any
from uuid import UUID

logger = logging.getLogger("watchbill.events")

Observer = Callable[..., None]

EVENTS = frozenset(
    {
        "job_enqueued", "job_unblocked", "job_started", "job_completed", "job_failed", "job_retry", "job_died",
        "job_snoozed", "job_released", "job_reclaimed", "job_canceled", "job_rescheduled",
        "node_started", "node_lost", "node_stopped", "rebalance",
        "scheduler_started", "scheduler_stopped", "schedule_fired", "schedule_overdue",
    }
)  # fmt: skip


class Events:
    """Who wants to hear of what."""

    def __init__(self) -> None:
        self._observers: dict[str, list[Observer]] = defaultdict(list)

    def on(self, name: str, observer: Observer) -> None:
        if name not in EVENTS:
            raise ValueError(f"there is no event {name!r}; the events are {', '.join(sorted(EVENTS))}")
        self._observers[name].append(observer)

    def heard(self, name: str) -> bool:
        """Whether telling is worth the trouble of collecting what there is to tell."""
        return bool(self._observers.get(name))

    def tell(self, name: str, /, **what: Any) -> None:
        for observer in self._observers.get(name, ()):
            try:
                observer(**what)
            except Exception:
                logger.exception("An observer of %s failed", name)


def tell_decided(events: Events, decided: list[tuple[Any, ...]]) -> None:
    """What `unblock` has answered: those that may run now, and those that never will."""
    if events.heard("job_unblocked") or events.heard("job_canceled"):
        for job_id, state in decided:
            if state == "queued":
                events.tell("job_unblocked", id=UUID(bytes=job_id))
            elif state == "canceled":
                tell_canceled(events, UUID(bytes=job_id))


def tell_canceled(events: Events, job_id: UUID, job: Any = None) -> None:
    """`job` is its run, where one has ended by it."""
    events.tell("job_canceled", id=job_id, job=job)

"""Events that a program can observe. Each is emitted at most once, after commit, in the process that caused it.

If an observer raises an error, it is logged; no job fails because of it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any
from uuid import UUID

logger = logging.getLogger("watchbill.events")

Observer = Callable[..., None]

EVENTS = frozenset(
    {
        "job_enqueued", "job_unblocked", "job_started", "job_completed", "job_failed", "job_retry", "job_died",
        "job_snoozed", "job_released", "job_suspended", "job_reclaimed", "job_canceled",
        "node_started", "node_lost", "node_stopped", "leader_elected", "leader_deposed", "rebalance",
        "scheduler_started", "scheduler_stopped", "schedule_fired", "schedule_overdue",
    }
)  # fmt: skip


class Events:
    """The observers of one App, by the name of the event."""

    def __init__(self) -> None:
        self.observers: dict[str, list[Observer]] = defaultdict(list)

    def on(self, name: str, observer: Observer) -> None:
        if name not in EVENTS:
            guess = "".join(f" Did you mean {each!r}?" for each in get_close_matches(str(name), sorted(EVENTS), n=1))
            raise ValueError(f"there is no event {name!r}.{guess} The events are {', '.join(sorted(EVENTS))}")
        self.observers[name].append(observer)

    def has_observer(self, name: str) -> bool:
        """Whether the event has an observer. If not, the caller need not collect the arguments for `emit`."""
        return bool(self.observers.get(name))

    def emit(self, name: str, /, **what: Any) -> None:
        """Calls each observer of the event."""
        for observer in self.observers.get(name, ()):
            try:
                observer(**what)
            except Exception:
                logger.exception("An observer of the event %s failed; its error is ignored", name)


def emit_unblocked(events: Events, decided: list[tuple[Any, ...]]) -> None:
    """Emits an event for each blocked job that was queued or canceled. `decided` are the rows that the SQL function
    `unblock` returned: job id and state."""
    if events.has_observer("job_unblocked") or events.has_observer("job_canceled"):
        for job_id, state in decided:
            if state == "queued":
                events.emit("job_unblocked", id=UUID(bytes=job_id))
            elif state == "canceled":
                emit_canceled(events, UUID(bytes=job_id))


def emit_canceled(events: Events, job_id: UUID, job: Any = None) -> None:
    """Emits `job_canceled`. `job` is the run that was canceled, if it ran in this process."""
    events.emit("job_canceled", id=job_id, job=job)

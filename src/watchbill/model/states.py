"""The states of a job and its transitions; tests compare the view and random histories with it."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

State = Literal["blocked", "queued", "running", "failed", "succeeded", "dead", "canceled"]
# What a queued or failed job waits for.
Waits = Literal["ready", "scheduled", "retrying", "paused", "unsupported", "limited", "unmatched"]
Outcome = Literal["succeeded", "skipped", "failed", "timed_out", "canceled", "snoozed", "released", "lost"]

STATES: tuple[State, ...] = get_args(State)
WAITS: tuple[Waits, ...] = get_args(Waits)
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
FINISHED: frozenset[State] = frozenset({"succeeded", "dead", "canceled"})


class Transition(NamedTuple):
    verb: str
    before: frozenset[State]
    after: frozenset[State]
    events: tuple[str, ...]


def _states(*names: State) -> frozenset[State]:
    return frozenset(names)


_NO_STATE: frozenset[State] = frozenset()

TRANSITIONS: tuple[Transition, ...] = (
    Transition("enqueue", _NO_STATE, _states("queued", "blocked"), ("job_enqueued",)),
    Transition("unblock", _states("blocked"), _states("queued"), ("job_unblocked",)),
    Transition("claim", _states("queued", "failed"), _states("running"), ("job_started",)),
    Transition("complete", _states("running"), _states("succeeded"), ("job_completed",)),
    Transition("fail", _states("running"), _states("failed", "dead"), ("job_failed", "job_retry", "job_died")),
    Transition("snooze", _states("running"), _states("queued"), ("job_snoozed",)),
    Transition("release", _states("running"), _states("queued"), ("job_released",)),
    Transition("reclaim", _states("running"), _states("failed", "dead"), ("job_reclaimed",)),
    Transition("cancel", _states("blocked", "queued", "failed", "running"), _states("canceled"), ("job_canceled",)),
    Transition(
        "reschedule",
        _states("succeeded", "dead", "canceled", "failed", "queued"),
        _states("queued"),
        (),
    ),
    # A job that was canceled because of its parent, when the parent is rescheduled.
    Transition("revive", _states("canceled"), _states("blocked"), ()),
)

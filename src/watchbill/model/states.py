"""The states of a job, and the transitions between them. Tests compare the database with this list."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

State = Literal["blocked", "queued", "running", "suspended", "failed", "succeeded", "dead", "canceled"]
# What a queued or failed job may wait for.
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


def _make_set(*names: State) -> frozenset[State]:
    return frozenset(names)


_NO_STATE: frozenset[State] = frozenset()

TRANSITIONS: tuple[Transition, ...] = (
    Transition("enqueue", _NO_STATE, _make_set("queued", "blocked"), ("job_enqueued",)),
    Transition("unblock", _make_set("blocked"), _make_set("queued"), ("job_unblocked",)),
    Transition("claim", _make_set("queued", "failed"), _make_set("running"), ("job_started",)),
    Transition("complete", _make_set("running"), _make_set("succeeded"), ("job_completed",)),
    Transition("fail", _make_set("running"), _make_set("failed", "dead"), ("job_failed", "job_retry", "job_died")),
    Transition("snooze", _make_set("running"), _make_set("queued"), ("job_snoozed",)),
    Transition("suspend", _make_set("running"), _make_set("suspended", "queued"), ("job_suspended",)),
    Transition("wake", _make_set("suspended"), _make_set("queued"), ()),
    Transition("release", _make_set("running"), _make_set("queued"), ("job_released",)),
    Transition("reclaim", _make_set("running"), _make_set("failed", "dead"), ("job_reclaimed",)),
    Transition(
        "cancel",
        _make_set("blocked", "queued", "failed", "suspended", "running"),
        _make_set("canceled"),
        ("job_canceled",),
    ),
    Transition(
        "reschedule",
        _make_set("succeeded", "dead", "canceled", "failed", "queued"),
        _make_set("queued"),
        (),
    ),
    # For a job that was canceled because its parent failed: when the parent runs again, this job waits for it again.
    Transition("revive", _make_set("canceled"), _make_set("blocked"), ()),
)

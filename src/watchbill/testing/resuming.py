"""`assert_resumes`: runs a job with steps again and again, each time with a crash at another write of a step, and
compares how it ends.

It is written once, as a generator that yields what to do: a call to enqueue, a drain, an operation. The class Watchbill
carries that out for blocking tests and for those on an event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple

from watchbill.app.json_round_trip import shorten
from watchbill.app.task import Call
from watchbill.client import job_operations
from watchbill.client.operations import Operation, Statement
from watchbill.model.job import JobRecord
from watchbill.model.steps import StepRecord
from watchbill.testing.crashing import Crash
from watchbill.testing.draining import RunLog
from watchbill.testing.timetable import pass_time, promote, read_clock

MOST_WAITS = 1000  # of one job
MOST_RUNS = 10_000
_ENDED = ("succeeded", "dead", "canceled")

Request = Call[Any] | RunLog | Operation[Any]
Program = Generator[Request, Any, Any]


class Ending(NamedTuple):
    """How a job has ended: what must not depend on crashes."""

    state: str
    result: Any
    error: str | None
    steps: dict[str, tuple[str, str]]  # name: kind and state

    def explain_difference(self, other: Ending, *, compares_result: bool) -> str | None:
        if self.state != other.state or self.error != other.error:
            return f"the job is {other.state}{_show(other.error)}, and was {self.state}{_show(self.error)}"
        if compares_result and self.result != other.result:
            return f"the result is {shorten(repr(other.result))}, and was {shorten(repr(self.result))}"
        for name in sorted(self.steps.keys() | other.steps.keys()):
            if self.steps.get(name) != other.steps.get(name):
                return f"step {name} is {_describe(other.steps.get(name))}, and was {_describe(self.steps.get(name))}"
        return None


def _show(error: str | None) -> str:
    return "" if error is None else f" ({error})"


def _describe(step: tuple[str, str] | None) -> str:
    return "not stored" if step is None else step[1]


def try_crashes(
    call: Call[Any], signals: Mapping[str, Any], report: Callable[[str], None], *, compares_result: bool
) -> Program:
    """Returns how many crashes were tried. Raises AssertionError if one has changed how the job ends."""
    counting = Crash()
    expected = yield from _run_once(call, signals, counting, report)
    assert expected.steps, f"{call.task.type} has stored no step: is its first parameter a Steps or an AsyncSteps?"
    for at in range(1, counting.writes + 1):
        for is_after in (False, True):
            crash = Crash(at, is_after=is_after)
            found = yield from _run_once(call, signals, crash, report)
            difference = expected.explain_difference(found, compares_result=compares_result)
            when = "after" if is_after else "before"
            assert difference is None, (
                f"{call.task.type} does not resume: after a crash {when} step {crash.step} was stored, {difference}. "
                "Time, chance and reads belong into steps, and effects too."
            )
    return counting.writes * 2


def _run_once(call: Call[Any], signals: Mapping[str, Any], crash: Crash, report: Callable[[str], None]) -> Program:
    job = yield call
    crash.job_id = job.id.bytes
    for name, payload in signals.items():
        yield job_operations.signal(job.id, name, payload)
    for _ in range(MOST_WAITS):
        yield RunLog(MOST_RUNS, raising=False, crash=crash)
        jobs: list[JobRecord] = yield _read_all_jobs()
        (record,) = [each for each in jobs if each.id == job.id]
        if record.state in _ENDED:
            steps: list[StepRecord] = yield job_operations.steps(job.id)
            found = {step.name: (step.kind, step.state) for step in steps}
            error = None
            if record.error is not None:
                error = f"{record.error.get('type', 'error')}: {record.error.get('message')}"
            return Ending(record.state, record.result, error, found)
        due = [each.run_at for each in jobs if each.wait == "delayed"]
        assert due, (
            f"{call.task.type} is {record.state} and nothing is due: give what its steps wait for, such as "
            "signals={'approval': 'yes'}"
        )
        yield _pass_time_until(min(due), report)
    raise AssertionError(f"{call.task.type} has not ended after {MOST_WAITS:,} waits")


def _pass_time_until(due: Any, report: Callable[[str], None]) -> Operation[None]:
    now = yield from read_clock()
    if due > now:
        now = yield from pass_time(due - now, report)
    yield from promote(now)


def _read_all_jobs() -> Operation[list[JobRecord]]:
    return [JobRecord(*row) for row in (yield Statement("all_jobs", (), JobRecord))]

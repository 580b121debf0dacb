"""Says what is wrong with a history. It knows the promises, and nothing of how they are kept.

A run is one claim of a job; `fence` names it and `run` numbers it. The run that decides a job's end is the one whose
fence stands in `finished_jobs`. A run is superseded when the job was claimed again: its fence is then smaller than
another one of the same job.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.chaos.flow_checker import CLOCK, RULES_OF_FLOW_CONTROL
from tests.chaos.history import History, Row, Sent, Start
from tests.chaos.promises import is_doomed, promise_of

SPENT = ("skipped", "failed", "timed_out")  # outcomes that count as an attempt; a plain success has no row of its own
EXACTLY_ONCE = ("write_async", "write_thread", "complete_myself", "limited_write", "limited_myself", "batch_write")
GUARDED = ("guarded",)
MOST_LOSSES = 3

# How a job of a type ends when no operator and no loss comes between; all others succeed.
ENDS = {"doomed": "dead", "permanent": "dead", "long": "canceled", "poison": "lost"}


@dataclass(frozen=True)
class Violation:
    rule: str
    id: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.id}: {self.what}"


@dataclass
class Case:
    """Everything that is known of one job."""

    id: str
    type: str
    sent: Sent | None
    history: History
    jobs: list[Row]
    finished: list[Row]
    attempts: list[Row]

    @property
    def end(self) -> Row | None:
        return self.finished[0] if self.finished else None

    @property
    def starts(self) -> list[Start]:
        return self.history.starts.get(self.id, [])

    def handler_end(self, fence: int) -> tuple[float, str] | None:
        """When and how the handler under this fence ended, as it told itself."""
        for end in self.history.ends.get(self.id, []):
            if end.fence == fence or end.fence is None:
                return end.at, end.how
        return None

    def started(self, fence: int) -> bool:
        return any(start.fence in (fence, None) for start in self.starts)

    def runs(self) -> set[tuple[int, int]]:
        """(run, fence) of every claim that left a trace."""
        told = {(s.run, s.fence) for s in self.starts if s.run is not None and s.fence is not None}
        rows = {(row["run"], row["fence"]) for row in [*self.attempts, *self.finished] if row["fence"]}
        return told | rows

    @property
    def died_by_loss(self) -> bool:
        return self.end is not None and (self.end["state"], self.end["outcome"]) == ("dead", "lost")

    @property
    def stopped_with_its_node(self) -> bool:
        """Allowed to those that may run once only; all others run again."""
        error = (self.end and self.end["error"]) or {}
        return self.end is not None and self.end["max_attempts"] == 1 and "its node stopped" in error.get("message", "")

    @property
    def asked_to_stop(self) -> bool:
        return bool(self.history.cancels.get(self.id))

    @property
    def wanted(self) -> str:
        """How it ends when no operator and no loss comes between."""
        return "dead" if self.sent and is_doomed(self.type, self.sent.arguments) else ENDS.get(self.type, "succeeded")

    @property
    def found_its_limit_full(self) -> bool:
        """Allowed to the jobs of a limit that discards or replaces. One that was asked to stop may be lost before."""
        word, error = promise_of(self.type).ends_when_full, (self.end and self.end["error"]) or {}
        was_lost = self.end is not None and self.end["outcome"] == "lost"
        return word is not None and (word in error.get("message", "") or (word == "replaced" and was_lost))

    @property
    def was_retried(self) -> bool:
        """By an operator, after its death: it has all its attempts again."""
        return self.id in self.history.retries


Rule = Callable[[Case], Iterator[str]]


def check(history: History, *, drained: bool = True) -> list[Violation]:
    """Everything that is wrong; `drained`: all work was done and all workers have left."""
    found = [
        Violation(rule.__name__, case.id, what) for case in _cases(history) for rule in RULES for what in rule(case)
    ]
    found += [Violation("keys_stand_for_one_job", "", what) for what in keys_stand_for_one_job(history)]
    found += [Violation(rule.__name__, about, what) for rule in RULES_OF_FLOW_CONTROL for about, what in rule(history)]
    if drained:
        found += [Violation("nothing_is_left", "", what) for what in nothing_is_left(history)]
    return found


def _cases(history: History) -> Iterator[Case]:
    jobs, finished = history.by_job("jobs", "id"), history.by_job("finished_jobs", "id")
    attempts = history.by_job("attempts", "job_id")
    for job_id in {*history.sent, *history.starts, *jobs, *finished, *attempts}:
        rows = [*jobs[job_id], *finished[job_id]]
        sent = history.sent.get(job_id)
        kind = sent.type if sent else str(rows[0]["type"]) if rows else "unknown"
        ordered = sorted(attempts[job_id], key=lambda row: int(row["run"]))
        yield Case(job_id, kind, sent, history, jobs[job_id], finished[job_id], ordered)


# -- what became of it


def nothing_acknowledged_is_lost(case: Case) -> Iterator[str]:
    if case.sent and case.sent.fate == "acknowledged" and case.sent.names_itself and not (case.jobs or case.finished):
        yield "was acknowledged and is in no table"


def nothing_rolled_back_exists(case: Case) -> Iterator[str]:
    if case.sent is None or case.sent.fate == "rolled_back" or not case.sent.names_itself:
        if case.jobs or case.finished:
            yield "is in a table, though nobody has committed it"
        if case.starts:
            yield "was run, though nobody has committed it"


def each_job_ends_once(case: Case) -> Iterator[str]:
    if len(case.finished) > 1:
        yield f"has {len(case.finished)} ends: {[row['state'] for row in case.finished]}"
    if case.jobs and case.finished:
        yield "is finished and unfinished at once"
    if len(case.jobs) > 1:
        yield "is in jobs more than once"
    for row in case.jobs:
        yield f"has not ended: run {row['run']}, fence {row['fence']}, wait {row['wait']}, lost {row['lost']}"


def it_ends_as_its_handler_says(case: Case) -> Iterator[str]:
    if case.end is None:
        return
    state, wanted = case.end["state"], case.wanted
    if state == "canceled":
        if not case.asked_to_stop and not case.found_its_limit_full:
            yield "is canceled, and nobody asked for that"
    elif state == "dead" and not case.died_by_loss:
        if wanted != "dead" and not case.stopped_with_its_node:
            yield f"is dead by {case.end['outcome']}: {(case.end['error'] or {}).get('message')}"
        elif case.asked_to_stop and _asked_before_end(case):
            yield "is dead, though it had been asked to stop"
    elif state == "succeeded" and wanted != "succeeded" and not case.was_retried:
        yield "has succeeded, which its handler never does"


def _asked_before_end(case: Case) -> bool:
    assert case.end is not None
    heard = [c for c in case.history.cancels[case.id] if c.answer == "running"]
    return any(c.at < case.end["finished_at"].timestamp() - CLOCK for c in heard)


def a_canceled_job_is_never_requeued(case: Case) -> Iterator[str]:
    for request in case.history.cancels.get(case.id, []):
        if case.end is None or request.answer is None:
            continue
        if request.answer == "canceled" and case.end["state"] != "canceled":
            yield f"was canceled at once, and is {case.end['state']}"
        later = [row for row in case.attempts if row["ended_at"].timestamp() > request.at + CLOCK]
        if request.answer == "running" and any(row["run"] < case.end["run"] for row in later):
            yield "was run again after it had been asked to stop"


# -- who decided it


def a_run_starts_once(case: Case) -> Iterator[str]:
    for fence, times in Counter(start.fence for start in case.starts if start.fence is not None).items():
        if times > 1:
            yield f"was started {times} times under fence {fence}"


def runs_are_numbered_by_claims(case: Case) -> Iterator[str]:
    """Each claim draws a larger fence and the next number; the end bears those of the last claim."""
    for (run, fence), (next_run, next_fence) in pairwise(sorted(case.runs())):
        if run == next_run:
            yield f"has two fences for run {run}: {fence} and {next_fence}"
        elif fence >= next_fence:
            yield f"run {next_run} has fence {next_fence}, and run {run} before it {fence}"
    for run, times in Counter(row["run"] for row in case.attempts).items():
        if times > 1:
            yield f"has {times} rows among the attempts for run {run}"
    claims = max((row["run"] for row in [*case.jobs, *case.finished]), default=None)
    if claims is not None and len({fence for _, fence in case.runs()}) > claims:
        yield f"was claimed {claims} times and ran under more fences: {sorted(case.runs())}"


def nothing_runs_after_the_end(case: Case) -> Iterator[str]:
    if case.end is not None:
        for run, fence in case.runs():
            if run > case.end["run"]:
                yield f"ended with run {case.end['run']}, and was run again: run {run}, fence {fence}"


def only_the_last_holder_decides(case: Case) -> Iterator[str]:
    """A success is that of the fence it bears: this very run returned, and before the job was finished."""
    end = case.end
    if end is None or end["state"] != "succeeded":
        return
    told = case.handler_end(end["fence"])
    if told is None:
        yield f"has succeeded under fence {end['fence']}, where no handler ended"
    elif told[0] > end["finished_at"].timestamp() + CLOCK:
        yield f"has succeeded under fence {end['fence']}, before that run had ended: somebody else's word"
    elif told[1] not in (("Skip",) if end["outcome"] == "skipped" else ("returned",)):
        yield f"has succeeded under fence {end['fence']}, where the handler ended with {told[1]}"
    if any(fence > end["fence"] for _, fence in case.runs()):
        yield f"was decided by fence {end['fence']}, which had been superseded"


def only_what_ran_has_failed(case: Case) -> Iterator[str]:
    """An attempt is spent by a handler that ran, under that fence and before that time."""
    for row in case.attempts:
        if row["outcome"] not in SPENT or (row["error"] or {}).get("type") == "ChildDied":
            continue
        told = case.handler_end(row["fence"])
        if not case.started(row["fence"]):
            yield f"run {row['run']} is {row['outcome']}, and no handler started: {(row['error'] or {}).get('message')}"
        elif row["outcome"] != "timed_out" and (told is None or told[0] > row["ended_at"].timestamp() + CLOCK):
            yield f"run {row['run']} is {row['outcome']}, and its handler had not ended: somebody else's word"


# -- what it is charged for


def attempts_are_counted(case: Case) -> Iterator[str]:
    if case.was_retried:
        return
    spent = 0
    for row in case.attempts:
        spent += row["outcome"] in SPENT
        if row["attempt"] != spent + (row["outcome"] == "lost"):  # a lost run spends none, and says which it was
            yield f"run {row['run']} says attempt {row['attempt']}, and {spent} were spent"
    if case.end is None:
        return
    spent += case.end["state"] == "succeeded" and case.end["outcome"] is None
    if case.end["attempt"] != spent:
        yield f"says {case.end['attempt']} attempts, and {spent} were spent"
    if spent > case.end["max_attempts"]:
        yield f"has spent {spent} attempts of {case.end['max_attempts']}"
    permanent = (case.end["error"] or {}).get("kind") == "permanent"
    if case.end["state"] == "dead" and not case.died_by_loss and not permanent and spent < case.end["max_attempts"]:
        yield f"is dead after {spent} attempts of {case.end['max_attempts']}"


def losses_are_counted(case: Case) -> Iterator[str]:
    """`lost` is how often in a row; a run that started and ended otherwise clears it. Only lost nodes lose."""
    if case.was_retried:
        return
    states = {row["epoch"]: row["state"] for row in case.history.tables["nodes"]}
    streak = 0
    for row in case.attempts:
        if row["outcome"] == "lost":
            streak += 1
            if states.get(row["epoch"], "lost") != "lost":
                yield f"run {row['run']} was lost with a node that is {states[row['epoch']]}"
        elif row["started_at"] is not None:
            streak = 0
        if streak >= MOST_LOSSES and case.end is not None and not (case.died_by_loss or _stopped_by(row, case.end)):
            yield f"was lost {streak} times in a row and lived"
    if case.end is None:
        return
    if case.end["state"] == "succeeded" and case.end["lost"] != 0:
        yield f"has succeeded with {case.end['lost']} losses"
    enough = 1 if case.end["max_attempts"] == 1 else MOST_LOSSES
    if case.died_by_loss and not (case.end["lost"] == streak == enough):
        yield f"died of {case.end['lost']} losses, {streak} in a row; {enough} are its end"


def _stopped_by(row: Row, end: Row) -> bool:
    """Lost for the last time when it had been asked to stop: that is its end."""
    return bool(end["state"] == "canceled" and end["run"] == row["run"])


# -- what it did


def effects_happen_exactly_once(case: Case) -> Iterator[str]:
    """Written in one transaction with the completion: one for a success, under its fence; none for anything else."""
    fences = _effects(case.history)[case.id]
    if case.type in EXACTLY_ONCE:
        wanted = [case.end["fence"]] if case.end and case.end["state"] == "succeeded" else []
        if fences != wanted:
            yield f"has effects under the fences {fences}, and should have them under {wanted}"
    elif case.type in GUARDED:
        if fences != sorted(fences):
            yield f"a superseded run had an effect after its successor: {fences}"
        if case.end and case.end["state"] == "succeeded" and case.end["fence"] not in fences:
            yield "has succeeded without its effect"


def _effects(history: History) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for job_id, fence in history.effects:
        found[job_id].append(fence)
    return found


def nothing_runs_too_early(case: Case) -> Iterator[str]:
    if case.sent:
        for start in case.starts:
            if start.at < case.sent.not_before - CLOCK:
                yield f"was started {case.sent.not_before - start.at:.3f} s before it was due"


RULES: tuple[Rule, ...] = (
    nothing_acknowledged_is_lost,
    nothing_rolled_back_exists,
    each_job_ends_once,
    it_ends_as_its_handler_says,
    a_canceled_job_is_never_requeued,
    a_run_starts_once,
    runs_are_numbered_by_claims,
    nothing_runs_after_the_end,
    only_the_last_holder_decides,
    only_what_ran_has_failed,
    attempts_are_counted,
    losses_are_counted,
    effects_happen_exactly_once,
    nothing_runs_too_early,
)


# -- of all of them together


def keys_stand_for_one_job(history: History) -> Iterator[str]:
    """All who used a key were told of the same job, and one of them made it."""
    jobs: dict[tuple[str, str], set[str]] = defaultdict(set)
    makers: dict[tuple[str, str], set[str]] = defaultdict(set)
    for sent in history.sent.values():
        if sent.key is not None:
            for answer, created in sent.answers:
                jobs[sent.type, sent.key].add(answer)
                if created:
                    makers[sent.type, sent.key].add(sent.id)
    stored: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in [*history.tables["jobs"], *history.tables["finished_jobs"]]:
        if row["idempotency_key"] is not None:
            stored[row["type"], row["idempotency_key"]].add(str(row["id"]))
    for key in {*jobs, *stored}:
        if len(jobs[key] | stored[key]) > 1:
            yield f"key {key} stands for several jobs: {sorted(jobs[key] | stored[key])}"
        if len(makers[key]) > 1:
            yield f"key {key} was made by several: {sorted(makers[key])}"


def nothing_is_left(history: History) -> Iterator[str]:
    for name in ("claims", "runs", "cancels", "beats", "holds"):
        for row in history.tables[name]:
            yield f"{name} has {_shown(row)}"
    for row in history.tables["nodes"]:
        if row["state"] not in ("left", "lost"):
            yield f"node {row['name']} is {row['state']}"


def _shown(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}

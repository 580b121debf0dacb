"""The rules of flow control: a true history raises nothing, and each planted fault is found by its rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.checker import check
from tests.chaos.history import Change, Claim, History, LimitChange, Row, Sent
from tests.chaos.promises import BATCH_SIZE, CALLS, MANY_CALLS, PROMISES, VISITS
from tests.chaos.test_checker import BEGAN, LOST_EPOCH, Story

START = BEGAN.timestamp()


class FlowStory(Story):
    """Runs follow each other, a second each; a job is enqueued just before its first run."""

    def task(self, name: str, type: str, *runs: str, more: Row | None = None, **args: Any) -> Row:
        sent_at = self._last + 0.1
        few = PROMISES[type].ordered_by is not None
        end = self.job(name, *runs, type=type, max_attempts=3 if few else 50)
        sent = self.history.sent[name]
        sent.arguments, sent.began, sent.asked_at, sent.acknowledged_at = args, sent_at, sent_at, sent_at + 0.1
        for start in self.history.starts[name] if more else []:
            start.more.update(more or {})
        return end

    @property
    def _last(self) -> float:
        return max((claim.at for claims in self.history.claims.values() for claim in claims), default=START) + 2

    def duplicate(self, name: str, of: str, after: float, **args: Any) -> None:
        """An enqueue that was answered with an earlier job, so many seconds after that one's."""
        first = self.history.sent[of]
        at = first.began + after
        sent = Sent(name, first.type, fate="acknowledged", answers=[(of, False)], arguments=args)
        sent.began = sent.asked_at = at
        sent.acknowledged_at = at + 0.1
        self.history.sent[name] = sent


@pytest.fixture
def history() -> History:
    story = FlowStory()
    story.task("one", "limited", "failed", "succeeded", account=1, seconds=0)
    story.task("frozen", "limited", "lost", "succeeded", account=1, seconds=0)
    story.task("two", "limited", "succeeded", account=1, seconds=0)
    story.task("queued", "fair", "succeeded", account=2, seconds=0)
    for n in range(CALLS.count + 1):
        story.task(f"call-{n}", "rated", "succeeded")
    for n in range(3):
        story.task(f"visit-{n}", "rated_limited", "succeeded", account=1, seconds=0)
    story.task("first", "ordered", "failed", "succeeded", key=1, failures=1, seconds=0)
    story.task("second", "ordered", "failed", "failed", "failed", key=1, failures=3, seconds=0)
    story.task("third", "ordered", "succeeded", key=1, failures=0, seconds=0)
    died = story.task("died", "strict", "failed", "failed", "failed", key=1, failures=3, seconds=0)
    story.history.clears["order:strict:1"].append(died["finished_at"].timestamp() + 0.1)
    story.task("freed", "strict", "succeeded", key=1, failures=0, seconds=0)
    story.task("revived", "strict", "failed", "failed", "failed", "succeeded", key=2, failures=3, seconds=0)
    story.history.retries["revived"].append(START)
    story.task("after", "strict", "succeeded", key=2, failures=0, seconds=0)
    waited = story.task("waits", "unique_waiting", "succeeded", account=1)
    story.duplicate("kept", "waits", 0.5, account=1)
    story.history.changes = [Change("waits", 1), Change("waits", 2)]
    story.history.seen["waits", waited["fence"]] = [1, 2]
    story.task("next", "unique_waiting", "succeeded", account=1)
    story.task("unfinished", "unique_unfinished", "succeeded", account=1, seconds=0)
    story.duplicate("again", "unfinished", 0.5, account=1, seconds=0)
    story.task("anew", "unique_unfinished", "succeeded", account=1, seconds=0)
    story.task("document", "replaced", "succeeded", more={"revision": "b"}, doc=1, revision="a")
    story.duplicate("edit", "document", 0.5, doc=1, revision="b")
    story.task("typing", "debounced", "succeeded", more={"revision": "d"}, doc=1, revision="c")
    story.duplicate("pausing", "typing", 0.5, doc=1, revision="d")
    story.task("item", "batched", "failed", "succeeded", more={"item": 5, "batch": 3}, items=5)["result"] = 10
    story.task("customer", "routed", "lost", "succeeded", customer=1, seconds=0)
    story.task("visitor", "routed", "succeeded", customer=1, seconds=0)
    story.task("newer", "superseded", "succeeded", place=1, seconds=0)
    story.history.sent["older"] = replace(story.history.sent["newer"], id="older", answers=[("older", True)])
    replaced: Row = _end(story.history, "newer") | {"id": "older", "state": "canceled", "run": 0, "fence": None}
    replaced |= {"attempt": 0, "seq": 0, "error": {"message": "replaced by a newer job of the same key"}}
    story.history.tables["finished_jobs"].append(replaced)
    return story.history


def _end(history: History, name: str) -> Row:
    return next(row for row in history.tables["finished_jobs"] if row["id"] == name)


def _found(history: History) -> set[tuple[str, str]]:
    return {(violation.rule, violation.id) for violation in check(history)}


def test_checker_accepts_a_true_history_of_flow_control(history: History) -> None:
    assert check(history) == []


def test_handler_of_a_frozen_process_may_go_on_beside_the_next(history: History) -> None:
    """Its hold has ended with its lease: only what is fenced counts."""
    lost = history.starts["frozen"][0]
    assert lost.fence is not None
    history.releases["frozen", lost.fence] = lost.at - 0.5
    history.starts["two"] = [replace(history.starts["two"][0], at=lost.at)]
    history.releases["two", _end(history, "two")["fence"]] = lost.at + 0.5
    assert check(history) == []


def test_a_raised_limit_holds_from_its_change_on(history: History) -> None:
    change = LimitChange(5, START, START + 1)
    history.limits["account:1"] = [change, LimitChange(1, START + 10_000)]
    _run_two_of_an_account(history)
    assert check(history) == []
    history.limits["account:1"] = [change, LimitChange(1, START + 2, START + 3)]
    assert ("limits_hold", "account:1") in _found(history)


def _overlap(history: History, name: str, other: str) -> None:
    """Starts the first run of a job amid the last run of another."""
    within = history.starts[other][-1].at + 0.01
    history.starts[name][0] = replace(history.starts[name][0], at=within)


def _run_two_of_an_account(h: History) -> None:
    _overlap(h, "two", "frozen")


def _run_four_of_a_queue(h: History) -> None:
    start, claim, sent = h.starts["queued"][0], h.claims["queued"][0], h.sent["queued"]
    for n in range(3):
        name = f"queued-{n}"
        h.sent[name] = replace(sent, id=name, answers=[(name, True)], arguments={"account": 10 + n})
        h.starts[name] = [replace(start, id=name)]
        h.ends[name] = [replace(h.ends["queued"][0], id=name)]
        h.claims[name] = [replace(claim, id=name)]
        h.releases[name, claim.fence] = h.releases["queued", claim.fence]
        h.tables["finished_jobs"].append(_end(h, "queued") | {"id": name})


def _start_before_the_step(h: History) -> None:
    """After a start that was late by the whole grace, one that is early by more."""
    assert VISITS.step is not None
    first, step = h.claims["visit-0"][0].at, VISITS.step / 1_000_000
    for n, seconds in enumerate((0.0, 1.5 * step, 2 * step + 2e-6)):
        h.claims[f"visit-{n}"][0] = replace(h.claims[f"visit-{n}"][0], at=first + seconds)
    assert check(h) == [], "a start before it was late"
    h.claims["visit-2"][0] = replace(h.claims["visit-2"][0], at=first + 2 * step - 4e-6)


def _exceed_the_window_of_a_rate(h: History) -> None:
    """`count` claims at once, and one more a little before the end of the window."""
    claims = [replace(h.claims["call-0"][0], fence=n + 1) for n in range(CALLS.count + 1)]
    for n in range(1, CALLS.count + 1):
        h.claims.pop(f"call-{n}", None)
    h.claims["call-0"] = [*claims[:-1], replace(claims[-1], at=claims[0].at + CALLS.per + 2e-6)]
    assert check(h) == [], "so much is allowed"
    h.claims["call-0"][-1] = replace(claims[-1], at=claims[0].at + CALLS.per - 4e-6)


def _exceed_the_longer_window_of_two(h: History) -> None:
    """As many as it allows in each of the shorter windows, and one too many in the longer one."""
    _exceed_the_window_of_a_rate(h)
    first = h.claims["call-0"][0]
    times = [first.at + n // CALLS.count * CALLS.per * 1.5 for n in range(MANY_CALLS.count + 1)]
    h.claims["call-0"] = [replace(first, fence=n + 1, at=at) for n, at in enumerate(times)]


def _count_no_retries(h: History) -> None:
    """More claims of one job than the rate allows."""
    claim = h.claims["call-0"][0]
    h.claims["call-0"] = [replace(claim, fence=claim.fence - n) for n in range(CALLS.count + 1)]


def _overtake_a_failed_job(h: History) -> None:
    _overlap(h, "second", "first")
    h.starts["second"][0] = replace(h.starts["second"][0], at=h.starts["first"][0].at + 1.5)


def _overtake_a_dead_job(h: History) -> None:
    _overlap(h, "third", "second")


def _go_on_after_a_dead_job(h: History) -> None:
    h.clears.clear()


def _go_on_before_the_clearing(h: History) -> None:
    h.clears["order:strict:1"] = [h.starts["freed"][0].at + 0.01]


def _go_on_while_the_dead_runs_again(h: History) -> None:
    _overlap(h, "after", "revived")


def _make_a_second_that_waits(h: History) -> None:
    """When the first has not been claimed yet."""
    sent = h.sent["next"]
    sent.began = sent.asked_at = h.sent["waits"].acknowledged_at + 0.1
    sent.acknowledged_at = sent.began + 0.1


def _make_a_second_unfinished(h: History) -> None:
    """When the first runs."""
    sent = h.sent["anew"]
    sent.began = sent.asked_at = h.starts["unfinished"][0].at
    sent.acknowledged_at = sent.began + 0.1


def _name_a_job_that_has_ended(h: History) -> None:
    h.sent["kept"].asked_at = _end(h, "waits")["finished_at"].timestamp() + 20


def _start_before_the_commit(h: History) -> None:
    h.seen["waits", _end(h, "waits")["fence"]] = [1]


def _run_with_old_arguments(h: History) -> None:
    h.starts["document"][0].more["revision"] = "a"


def _lose_a_debounced_call(h: History) -> None:
    h.starts["typing"][0].more["revision"] = "c"


def _run_with_arguments_of_nobody(h: History) -> None:
    h.starts["document"][0].more["revision"] = "z"


def _do_not_wait_for_the_last_call(h: History) -> None:
    h.starts["typing"][0] = replace(h.starts["typing"][0], at=h.sent["pausing"].began + 0.1)


def _mix_up_items(h: History) -> None:
    h.starts["item"][1].more["item"] = 6


def _mix_up_results(h: History) -> None:
    _end(h, "item")["result"] = 12


def _fill_a_batch_too_far(h: History) -> None:
    h.starts["item"][0].more["batch"] = BATCH_SIZE + 1


def _run_a_job_of_a_batch_twice(h: History) -> None:
    h.starts["item"].append(h.starts["item"][0])


def _lose_a_job_of_a_batch(h: History) -> None:
    h.tables["finished_jobs"].remove(_end(h, "item"))


def _run_a_key_on_two_nodes(h: History) -> None:
    _overlap(h, "visitor", "customer")
    claim = h.claims["visitor"][0]
    h.claims["visitor"][0] = Claim(claim.id, claim.fence, LOST_EPOCH, claim.at)


def _replace_by_nothing(h: History) -> None:
    _end(h, "older")["seq"] = 10**9


def _cancel_without_a_limit(h: History) -> None:
    end = _end(h, "queued")
    end.update(state="canceled", error={"message": "replaced by a newer job of the same key"})


def _leave_a_hold(h: History) -> None:
    h.tables["holds"].append({"key": "key:account:1", "job_id": "one"})


def _leave_a_job_parked(h: History) -> None:
    h.tables["finished_jobs"].remove(end := _end(h, "two"))
    h.tables["jobs"].append(end | {"wait": "parked", "fence": 0})


PLANTED: list[tuple[Callable[[History], Any], str, str]] = [
    (_run_two_of_an_account, "limits_hold", "account:1"),
    (_run_four_of_a_queue, "limits_hold", "queue:fair"),
    (_start_before_the_step, "rates_hold", "visits:1"),
    (_exceed_the_longer_window_of_two, "rates_hold", "calls"),
    (_exceed_the_window_of_a_rate, "rates_hold", "calls"),
    (_count_no_retries, "rates_hold", "calls"),
    (_overtake_a_failed_job, "keys_keep_their_order", "second"),
    (_overtake_a_dead_job, "keys_keep_their_order", "third"),
    (_go_on_after_a_dead_job, "keys_keep_their_order", "freed"),
    (_go_on_before_the_clearing, "keys_keep_their_order", "freed"),
    (_go_on_while_the_dead_runs_again, "keys_keep_their_order", "after"),
    (_make_a_second_that_waits, "one_job_has_a_key", "next"),
    (_make_a_second_unfinished, "one_job_has_a_key", "anew"),
    (_name_a_job_that_has_ended, "duplicates_name_a_living_job", "kept"),
    (_start_before_the_commit, "kept_jobs_see_the_change", "waits"),
    (_run_with_old_arguments, "the_last_arguments_run", "document"),
    (_lose_a_debounced_call, "the_last_arguments_run", "typing"),
    (_run_with_arguments_of_nobody, "the_last_arguments_run", "document"),
    (_do_not_wait_for_the_last_call, "debounced_jobs_wait", "typing"),
    (_mix_up_items, "batches_are_their_jobs", "item"),
    (_mix_up_results, "batches_are_their_jobs", "item"),
    (_fill_a_batch_too_far, "batches_are_their_jobs", "item"),
    (_run_a_job_of_a_batch_twice, "a_run_starts_once", "item"),
    (_lose_a_job_of_a_batch, "nothing_acknowledged_is_lost", "item"),
    (_run_a_key_on_two_nodes, "a_routed_key_has_one_node", "1"),
    (_replace_by_nothing, "a_full_limit_cancels_for_a_reason", "older"),
    (_cancel_without_a_limit, "it_ends_as_its_handler_says", "queued"),
    (_leave_a_hold, "nothing_is_left", ""),
    (_leave_a_job_parked, "each_job_ends_once", "two"),
]


@pytest.mark.parametrize(("plant", "rule", "about"), PLANTED, ids=lambda value: getattr(value, "__name__", ""))
def test_checker_finds_each_planted_fault_of_flow_control(
    history: History, plant: Callable[[History], Any], rule: str, about: str
) -> None:
    plant(history)
    assert (rule, about) in _found(history)

"""The checker itself: a clean history raises nothing, and each planted fault is found by the rule that is for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from tests.chaos.checker import check
from tests.chaos.history import Cancel, Claim, End, History, Row, Sent, Start

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
EPOCH, LOST_EPOCH = 1, 2


class Story:
    """Tells a history run by run; each run lasts a second, and each claim draws the next fence."""

    def __init__(self) -> None:
        self.history = History()
        self._fences = count(100)
        self._seconds = count()
        nodes = [{"epoch": EPOCH, "name": "a", "state": "left"}, {"epoch": LOST_EPOCH, "name": "b", "state": "lost"}]
        self.history.tables["nodes"] = nodes

    def now(self) -> datetime:
        return BEGAN + timedelta(seconds=next(self._seconds))

    def job(self, name: str, *runs: str, type: str = "quick", max_attempts: int = 5, key: str | None = None) -> Row:
        """`runs` are outcomes, in order; the last one is the end. An outcome in brackets was never started."""
        self.history.sent[name] = Sent(name, type, key, fate="acknowledged", answers=[(name, True)])
        spent = losses = 0
        for run, told in enumerate(runs, start=1):
            outcome, started = told.strip("()"), told[0] != "("
            fence = next(self._fences)
            began, ended = self.now(), self.now()
            epoch = LOST_EPOCH if outcome == "lost" else EPOCH
            self.history.claims[name].append(Claim(name, fence, epoch, began.timestamp()))
            spent += outcome in ("succeeded", "skipped", "failed", "timed_out")
            losses = losses + 1 if outcome == "lost" else 0 if started else losses
            if started:
                self._handler(name, run, fence, outcome, began, ended)
            row: Row = {
                "job_id": name, "run": run, "attempt": spent + (outcome == "lost"), "fence": fence,
                "outcome": outcome, "epoch": epoch, "error": {"type": "ValueError"},
                "ended_at": self.now(),
                "started_at": began if started and outcome != "lost" else None,
            }  # fmt: skip
            self.history.releases[name, fence] = row["ended_at"].timestamp()
            if outcome != "succeeded" and (started or outcome == "lost"):
                self.history.tables["attempts"].append(row)
        end = {
            "id": name, "type": type, "state": _state(outcome), "run": run, "fence": fence, "attempt": spent,
            "max_attempts": max_attempts, "lost": losses, "finished_at": row["ended_at"], "idempotency_key": key,
            "outcome": outcome if outcome in ("skipped", "failed", "timed_out", "lost") else None,
            "error": row["error"], "seq": fence,
        }  # fmt: skip
        self.history.tables["finished_jobs"].append(end)
        return end

    def _handler(self, name: str, run: int, fence: int, outcome: str, began: datetime, ended: datetime) -> None:
        self.history.starts[name].append(Start(name, began.timestamp(), fence, run))
        how = {"succeeded": "returned", "skipped": "Skip", "failed": "ValueError", "snoozed": "Snooze"}.get(outcome)
        if how is not None:
            self.history.ends[name].append(End(name, ended.timestamp(), how, fence))


def _state(outcome: str) -> str:
    return {"succeeded": "succeeded", "skipped": "succeeded", "canceled": "canceled"}.get(outcome, "dead")


@pytest.fixture
def history() -> History:
    """One job of every kind, all in order."""
    story = Story()
    story.job("plain", "succeeded")
    story.job("flaky", "failed", "timed_out", "(released)", "succeeded", type="flaky")
    story.job("dozy", "snoozed", "succeeded", type="dozy")
    story.job("skip", "skipped", type="skip")
    story.job("survivor", "lost", "(released)", "lost", "succeeded")
    story.job("once", "lost", type="once", max_attempts=1)
    story.job("stopped", "failed", type="once", max_attempts=1)["error"] = {"message": "its node stopped while it ran"}
    story.job("poison", "lost", "lost", "lost", type="poison")
    lost = story.job("asked", "lost", "lost", "lost", type="long")
    lost["state"] = "canceled"
    story.history.cancels["asked"].append(Cancel("asked", lost["finished_at"].timestamp() - 1.5, "running"))
    story.job("doomed", "failed", "failed", "failed", type="doomed", max_attempts=3)
    story.job("keyed", "succeeded", key="k")
    story.history.sent["second"] = Sent("second", "quick", "k", fate="acknowledged", answers=[("keyed", False)])
    story.history.sent["taken back"] = Sent("taken back", "quick", fate="rolled_back")
    story.history.sent["doubtful"] = Sent("doubtful", "quick")
    written = story.job("written", "lost", "succeeded", type="write_async")
    guarded = story.job("guarded", "failed", "succeeded", type="guarded")
    first = story.history.starts["guarded"][0].fence
    assert first is not None
    story.history.effects = [("written", written["fence"]), ("guarded", first), ("guarded", guarded["fence"])]
    long = story.job("long", "released", "canceled", type="long")
    story.history.cancels["long"].append(Cancel("long", long["finished_at"].timestamp() - 1.5, "running"))
    return story.history


def _found(history: History) -> set[tuple[str, str]]:
    return {(violation.rule, violation.id) for violation in check(history)}


def test_checker_accepts_a_clean_history(history: History) -> None:
    assert check(history) == []


def _end(history: History, name: str) -> Row:
    return next(row for row in history.tables["finished_jobs"] if row["id"] == name)


def _attempt(history: History, name: str, run: int) -> Row:
    return next(row for row in history.tables["attempts"] if (row["job_id"], row["run"]) == (name, run))


def _lose(h: History) -> None:
    h.tables["finished_jobs"].remove(_end(h, "plain"))


def _keep_what_was_rolled_back(h: History) -> None:
    h.tables["finished_jobs"].append(_end(h, "plain") | {"id": "taken back"})


def _run_what_was_rolled_back(h: History) -> None:
    h.starts["taken back"].append(Start("taken back", 0.0, 7, 1))


def _invent(h: History) -> None:
    h.tables["finished_jobs"].append(_end(h, "plain") | {"id": "nobody's"})


def _finish_twice(h: History) -> None:
    h.tables["finished_jobs"].append(dict(_end(h, "plain")))


def _finish_and_keep(h: History) -> None:
    h.tables["jobs"].append(_end(h, "plain") | {"wait": None})


def _never_finish(h: History) -> None:
    h.tables["finished_jobs"].remove(end := _end(h, "plain"))
    h.tables["jobs"].append(end | {"wait": None, "fence": 100})


def _cancel_uncalled(h: History) -> None:
    h.cancels.clear()


def _kill_an_innocent(h: History) -> None:
    _end(h, "plain").update(state="dead", outcome="failed", max_attempts=1)


def _live_on_after_three_losses(h: History) -> None:
    _end(h, "asked").update(run=4)


def _do_not_run_again_what_may(h: History) -> None:
    _end(h, "stopped").update(max_attempts=5)


def _let_the_doomed_succeed(h: History) -> None:
    _end(h, "doomed").update(state="succeeded", outcome=None)


def _run_again_after_a_request_to_stop(h: History) -> None:
    h.cancels["long"][0] = replace(h.cancels["long"][0], at=0.0)


def _undo_a_cancel(h: History) -> None:
    h.cancels["plain"].append(Cancel("plain", 0.0, "canceled"))


def _start_twice(h: History) -> None:
    h.starts["plain"].append(h.starts["plain"][0])


def _run_after_success(h: History) -> None:
    h.starts["plain"].append(Start("plain", 2e9, 999, 2))


def _reuse_a_fence(h: History) -> None:
    second = h.starts["survivor"][1]
    h.starts["survivor"][1] = replace(second, fence=h.starts["survivor"][0].fence)


def _two_rows_for_a_run(h: History) -> None:
    h.tables["attempts"].append(dict(_attempt(h, "flaky", 1)))


def _forget_a_claim(h: History) -> None:
    h.starts["survivor"].append(Start("survivor", 0.0, 50, 4))


def _settle_with_a_stale_fence(h: History) -> None:
    """What a settle without its check does: the old run returned, the new one still runs, and the job has succeeded."""
    end = _end(h, "survivor")
    h.ends["survivor"] = [End("survivor", end["finished_at"].timestamp() + 5, "returned", end["fence"])]


def _bear_a_superseded_fence(h: History) -> None:
    end = _end(h, "survivor")
    first = h.starts["survivor"][0].fence
    assert first is not None
    h.ends["survivor"].append(End("survivor", 0.0, "returned", first))
    end["fence"] = first


def _succeed_by_an_error(h: History) -> None:
    end = h.ends["plain"][0]
    h.ends["plain"] = [replace(end, how="ValueError")]


def _succeed_without_running(h: History) -> None:
    h.ends["plain"].clear()


def _fail_without_running(h: History) -> None:
    h.starts["flaky"] = h.starts["flaky"][1:]


def _fail_by_a_stale_word(h: History) -> None:
    h.ends["doomed"][0] = replace(h.ends["doomed"][0], at=2e9)


def _miscount_attempts(h: History) -> None:
    _end(h, "flaky")["attempt"] = 2


def _miscount_one_attempt(h: History) -> None:
    _attempt(h, "flaky", 2)["attempt"] = 1


def _charge_for_a_snooze(h: History) -> None:
    _attempt(h, "dozy", 1)["attempt"] = 1


def _give_one_attempt_too_many(h: History) -> None:
    _end(h, "doomed")["max_attempts"] = 2


def _die_too_soon(h: History) -> None:
    _end(h, "doomed")["max_attempts"] = 4


def _lose_with_a_node_that_left(h: History) -> None:
    _attempt(h, "survivor", 1)["epoch"] = EPOCH


def _survive_three_losses(h: History) -> None:
    _attempt(h, "flaky", 1).update(outcome="lost", started_at=None)
    _attempt(h, "flaky", 2).update(outcome="lost", started_at=None)
    h.tables["attempts"].append(_attempt(h, "flaky", 2) | {"run": 3, "fence": 105})


def _keep_losses_after_success(h: History) -> None:
    _end(h, "survivor")["lost"] = 1


def _die_of_two_losses(h: History) -> None:
    h.tables["attempts"].remove(_attempt(h, "poison", 1))


def _repeat_an_effect(h: History) -> None:
    h.effects.append(h.effects[0])


def _miss_an_effect(h: History) -> None:
    h.effects = h.effects[1:]


def _effect_of_a_loser(h: History) -> None:
    fence = h.starts["written"][0].fence
    assert fence is not None
    h.effects.insert(0, ("written", fence))


def _effect_of_the_dead(h: History) -> None:
    _end(h, "written").update(state="dead", outcome="lost")


def _stale_effect(h: History) -> None:
    h.effects = [h.effects[0], h.effects[2], h.effects[1]]


def _start_too_early(h: History) -> None:
    h.sent["plain"].not_before = 2e9


def _two_jobs_of_a_key(h: History) -> None:
    h.sent["second"].answers = [("second", True)]


def _stored_twice_under_a_key(h: History) -> None:
    _end(h, "plain")["idempotency_key"] = "k"


PLANTED: list[tuple[Callable[[History], Any], str, str]] = [
    (_lose, "nothing_acknowledged_is_lost", "plain"),
    (_keep_what_was_rolled_back, "nothing_rolled_back_exists", "taken back"),
    (_run_what_was_rolled_back, "nothing_rolled_back_exists", "taken back"),
    (_invent, "nothing_rolled_back_exists", "nobody's"),
    (_finish_twice, "each_job_ends_once", "plain"),
    (_finish_and_keep, "each_job_ends_once", "plain"),
    (_never_finish, "each_job_ends_once", "plain"),
    (_cancel_uncalled, "it_ends_as_its_handler_says", "long"),
    (_kill_an_innocent, "it_ends_as_its_handler_says", "plain"),
    (_live_on_after_three_losses, "losses_are_counted", "asked"),
    (_do_not_run_again_what_may, "it_ends_as_its_handler_says", "stopped"),
    (_let_the_doomed_succeed, "it_ends_as_its_handler_says", "doomed"),
    (_run_again_after_a_request_to_stop, "a_canceled_job_is_never_requeued", "long"),
    (_undo_a_cancel, "a_canceled_job_is_never_requeued", "plain"),
    (_start_twice, "a_run_starts_once", "plain"),
    (_run_after_success, "nothing_runs_after_the_end", "plain"),
    (_reuse_a_fence, "runs_are_numbered_by_claims", "survivor"),
    (_two_rows_for_a_run, "runs_are_numbered_by_claims", "flaky"),
    (_forget_a_claim, "runs_are_numbered_by_claims", "survivor"),
    (_settle_with_a_stale_fence, "only_the_last_holder_decides", "survivor"),
    (_bear_a_superseded_fence, "only_the_last_holder_decides", "survivor"),
    (_succeed_by_an_error, "only_the_last_holder_decides", "plain"),
    (_succeed_without_running, "only_the_last_holder_decides", "plain"),
    (_fail_without_running, "only_what_ran_has_failed", "flaky"),
    (_fail_by_a_stale_word, "only_what_ran_has_failed", "doomed"),
    (_miscount_attempts, "attempts_are_counted", "flaky"),
    (_miscount_one_attempt, "attempts_are_counted", "flaky"),
    (_charge_for_a_snooze, "attempts_are_counted", "dozy"),
    (_give_one_attempt_too_many, "attempts_are_counted", "doomed"),
    (_die_too_soon, "attempts_are_counted", "doomed"),
    (_lose_with_a_node_that_left, "losses_are_counted", "survivor"),
    (_survive_three_losses, "losses_are_counted", "flaky"),
    (_keep_losses_after_success, "losses_are_counted", "survivor"),
    (_die_of_two_losses, "losses_are_counted", "poison"),
    (_repeat_an_effect, "effects_happen_exactly_once", "written"),
    (_miss_an_effect, "effects_happen_exactly_once", "written"),
    (_effect_of_a_loser, "effects_happen_exactly_once", "written"),
    (_effect_of_the_dead, "effects_happen_exactly_once", "written"),
    (_stale_effect, "effects_happen_exactly_once", "guarded"),
    (_start_too_early, "nothing_runs_too_early", "plain"),
    (_two_jobs_of_a_key, "keys_stand_for_one_job", ""),
    (_stored_twice_under_a_key, "keys_stand_for_one_job", ""),
]


@pytest.mark.parametrize(("plant", "rule", "job"), PLANTED, ids=lambda value: getattr(value, "__name__", ""))
def test_checker_finds_each_planted_fault(
    history: History, plant: Callable[[History], Any], rule: str, job: str
) -> None:
    plant(history)
    assert (rule, job) in _found(history)


@pytest.mark.parametrize("table", ["claims", "runs", "cancels", "beats", "holds"])
def test_checker_finds_leftover_rows(history: History, table: str) -> None:
    history.tables[table].append({"epoch": EPOCH})
    assert _found(history) == {("nothing_is_left", "")}


def test_checker_finds_a_node_that_never_left(history: History) -> None:
    history.tables["nodes"][0]["state"] = "active"
    assert _found(history) == {("nothing_is_left", "")}


def test_checker_accepts_a_job_of_an_unconfirmed_enqueue(history: History) -> None:
    history.tables["finished_jobs"].append(_end(history, "plain") | {"id": "doubtful"})
    history.starts["doubtful"] = [replace(start, id="doubtful") for start in history.starts["plain"]]
    history.ends["doubtful"] = [replace(end, id="doubtful") for end in history.ends["plain"]]
    assert check(history) == []

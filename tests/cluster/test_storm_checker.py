"""The checker of storms finds each kind of fault that is planted into a history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.cluster.storm.checker import check, check_end, recovery_times
from tests.cluster.storm.recorded import ITEMS, JOBS, Answer, Calm, Change, History, Life, Plan, Work
from watchbill.cluster.hashing import token_of

KEY = "item-1"
TOKEN = token_of(KEY, 2)
OTHER = 1 - TOKEN


def make_history() -> History:
    """Two nodes with two tokens: the first is killed at 20 s, and the second owns all at 23 s."""
    return History(
        works=[
            Work(1, KEY, 100, 1, 1, 5.0, 5.1),
            Work(2, KEY, 100, 1, 2, 6.0, 6.1),
            Work(3, KEY, 300, 2, 3, 24.0, 24.1),
        ],
        changes=[
            Change(1.0, ITEMS, TOKEN, 1, None, 10),
            Change(1.0, ITEMS, OTHER, 1, None, 10),
            Change(2.0, ITEMS, OTHER, 1, 2, 10),
            Change(3.0, ITEMS, OTHER, 2, None, 11),
            Change(23.0, ITEMS, TOKEN, 2, None, 12),
        ],
        plans=[Plan(1.0, ITEMS, "first", "first"), Plan(20.5, ITEMS, "first", None), Plan(23.0, ITEMS, "next", "next")],
        answers=[Answer(1, 4.0, 4.1, (KEY,)), Answer(1, 19.9, 30.0, (KEY,)), Answer(2, 23.5, 23.6, (KEY,))],
        lives={11: Life(11, 0.0, 20.0), 12: Life(12, 0.0)},
        pids={1: 11, 2: 12},
        ends={1: 19.5},
        calms=[Calm(20.0, 30.0, 7.0)],
        ledger={KEY: 3},
        total=2,
        groups=(ITEMS,),
    )


def test_a_history_without_faults_passes() -> None:
    history = make_history()
    assert check(history) == []
    assert list(check_end(history)) == []
    assert [seconds for _, seconds in recovery_times(history)] == [3.0]


def test_routed_jobs_without_faults_pass() -> None:
    history = make_history()
    _route_jobs(history)
    assert check(history) == []


def _change_work(number: int, **values: object) -> Callable[[History], None]:
    def plant(history: History) -> None:
        history.works[number] = replace(history.works[number], **values)  # type: ignore[arg-type]

    return plant


def _change_token(number: int, **values: object) -> Callable[[History], None]:
    def plant(history: History) -> None:
        history.changes[number] = replace(history.changes[number], **values)  # type: ignore[arg-type]

    return plant


def _add_answer(answer: Answer) -> Callable[[History], None]:
    return lambda history: history.answers.append(answer)


def _route_jobs(history: History) -> None:
    """The same tokens route jobs."""
    history.changes += [replace(change, group=JOBS) for change in history.changes]
    history.works = [replace(work, sequence=n) for n, work in enumerate(history.works)]
    history.sent_jobs = {KEY: 3}


def _pass_token_during_job(history: History) -> None:
    _route_jobs(history)
    history.works[2] = replace(history.works[2], began=22.9)


def _run_elsewhere(history: History) -> None:
    _route_jobs(history)
    history.works[1] = replace(history.works[1], epoch=2, fence=101)


def _send_jobs(history: History) -> None:
    """They have run as 0, 2, 1."""
    history.works = [replace(work, sequence=n) for work, n in zip(history.works, (0, 2, 1), strict=True)]
    history.sent_jobs = {KEY: 3}


def _lose_a_job(history: History) -> None:
    _route_jobs(history)
    history.sent_jobs = {KEY: 4}


PLANTED: dict[str, tuple[Callable[[History], object], str]] = {
    "two nodes work at one time": (_change_work(2, began=6.05, ended=6.2), "two worked at one time"),
    "work is overwritten": (_change_work(2, value=2), "work was overwritten"),
    "an old fence is accepted": (_change_work(2, fence=99), "an old fence was accepted"),
    "two epochs use one fence": (_change_work(2, fence=100), "two epochs have worked under one fence"),
    "a work is not recorded": (lambda history: history.ledger.update({KEY: 4}), "the ledger of item-1 counts 4"),
    "jobs run out of order": (_send_jobs, "jobs of item-1 ran as"),
    "a job is lost": (_lose_a_job, "jobs of item-1 ran as"),
    "a job runs on a node that owns other keys": (_run_elsewhere, "where its key did not belong"),
    "a token does not wait for a job": (_pass_token_during_job, "where its key did not belong"),
    "an old leader plans": (
        lambda history: history.plans.append(Plan(24.0, ITEMS, "first", "next")),
        "planned while another one led",
    ),
    "a grant without a new fence": (_change_token(4, fence=10), "without a new fence"),
    "a living owner is passed over": (lambda history: history.ends.clear(), "without a hand-over"),
    "owns after the loss": (_add_answer(Answer(1, 23.1, 23.2, (KEY,))), "said that it owns item-1"),
    "owns before the grant": (_add_answer(Answer(2, 22.0, 22.1, (KEY,))), "said that it owns item-1"),
    "owns without any grant": (_add_answer(Answer(7, 22.0, 22.1, (KEY,))), "said that it owns item-1"),
    "tokens are late": (_change_token(4, at=27.5), "not within 7.0 s"),
    "a token is stranded": (lambda history: history.changes.pop(), "tokens are stranded"),
    "a token goes to a frozen node": (lambda history: history.lives[12].freezes.append((15.0, 40.0)), "stranded"),
    "a token has no owner": (_change_token(4, epoch=0), "tokens are stranded"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_the_checker_finds_what_was_planted(name: str) -> None:
    history = make_history()
    plant, words = PLANTED[name]
    plant(history)
    found = check(history)
    assert any(words in each for each in found), found


def test_the_checker_finds_tokens_that_move_for_ever_and_uneven_shares() -> None:
    history = make_history()
    history.changes.append(Change(25.0, ITEMS, OTHER, 2, 1, 11))
    assert "still move" in " ".join(check_end(history))
    history = make_history()
    history.total = 3
    assert "has 2 tokens, not 3" in " ".join(check_end(history))
    history.changes += [Change(26.0, ITEMS, 2, 3, None, 13)]
    history.total = 3
    assert list(check_end(history)) == []
    history.changes += [Change(27.0, ITEMS, 3, 2, None, 13)]
    history.total = 4
    assert "are uneven" in " ".join(check_end(history))


def test_dead_jobs_may_be_missing() -> None:
    history = make_history()
    _lose_a_job(history)
    history.dead_jobs.add((KEY, 3))
    assert check(history) == []

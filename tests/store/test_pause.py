"""Pausing a queue or a type: nothing of it starts until it is resumed, and nothing is left behind then."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.store.harness import Db, End, refused


def test_a_paused_queue_is_not_claimed(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue(queue="a")
    assert db.value("pause", queue="a", reason="rain") is True
    assert db.claim(epoch, queues=["a"]) == []
    other = db.enqueue(queue="b")
    assert [row.id for row in db.claim(epoch, queues=["a", "b"])] == [other]
    db.expect(job, state="queued", wait=None)
    assert db.value("resume", queue="a") is True
    assert [row.id for row in db.claim(epoch, queues=["a", "b"])] == [job]


def test_a_paused_type_is_put_aside_and_comes_back(db: Db) -> None:
    epoch = db.node()
    paused, other = db.enqueue("p", priority=9), db.enqueue("o")
    db.value("pause", type="p")
    assert [row.id for row in db.claim(epoch, 1)] == [other]
    db.expect(paused, state="queued", wait="paused", run=0)
    assert db.claim(epoch) == []
    db.value("resume", type="p")
    db.expect(paused, wait=None)
    assert [row.id for row in db.claim(epoch)] == [paused]


def test_a_type_may_be_paused_in_one_queue(db: Db) -> None:
    epoch = db.node()
    here, there = db.enqueue("p", queue="a"), db.enqueue("p", queue="b")
    db.value("pause", queue="a", type="p")
    assert [row.id for row in db.claim(epoch, queues=["a", "b"])] == [there]
    db.expect(here, wait="paused")
    assert db.value("resume", type="p") is False
    assert db.value("resume", queue="a") is False
    assert db.value("resume", queue="a", type="p") is True
    assert [row.id for row in db.claim(epoch, queues=["a", "b"])] == [here]


@pytest.mark.parametrize("max_attempts", [1, 5])
def test_a_head_of_paused_jobs_does_not_hide_what_stands_behind_it(db: Db, max_attempts: int) -> None:
    epoch = db.node()
    for _ in range(10):
        db.enqueue("p", priority=9, max_attempts=max_attempts)
    other = db.enqueue("o", max_attempts=max_attempts)
    db.value("pause", type="p")
    assert [row.id for row in db.claim(epoch, 2)] == [other]


def test_a_job_that_is_to_run_alone_may_be_of_a_paused_type(db: Db) -> None:
    lost = db.node()
    job = db.enqueue("p")
    db.claim(lost)
    db.lose(lost)
    epoch = db.node()
    db.make_ready()
    db.value("pause", type="p")
    assert db.claim(epoch, alone=True) == []
    db.expect(job, wait="paused", alone=True)
    db.value("resume", type="p")
    assert [row.id for row in db.claim(epoch, alone=True)] == [job]


def test_what_runs_goes_on(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue("p")
    held = db.claim_one(epoch)
    db.value("pause", type="p")
    db.value("pause", queue="default")
    assert db.settle(epoch, End(held)) == {}
    assert db.states(job) == ["succeeded"]


def test_a_job_rescheduled_while_it_was_paused_keeps_its_time(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue("p")
    db.value("pause", type="p")
    db.claim(epoch)
    db.value("reschedule", id=job, run_at=db.after(3600))
    db.expect(job, wait="paused", run_at=db.after(3600))
    db.value("resume", type="p")
    db.expect(job, wait="delayed", run_at=db.after(3600))
    db.value("reschedule", id=job)
    db.expect(job, wait=None)


def test_one_of_two_pauses_is_enough(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue("p")
    db.value("pause", type="p")
    db.value("pause", type="p", queue="default")
    db.claim(epoch)
    db.value("resume", type="p")
    db.expect(job, wait="paused")
    assert db.claim(epoch) == []
    db.value("resume", type="p", queue="default")
    assert [row.id for row in db.claim(epoch)] == [job]


def test_a_pause_is_made_once_and_ended_once(db: Db) -> None:
    assert db.value("pause", queue="a") is True
    assert db.value("pause", queue="a") is False
    assert db.value("pause", queue="a", type="t") is True
    assert db.value("resume", queue="a") is True
    assert db.value("resume", queue="a") is False
    with refused("WB003", r"pause what\?"):
        db.value("pause")


def test_what_no_job_can_be_of_is_not_paused(db: Db) -> None:
    for wrong in ({"queue": ""}, {"type": ""}, {"queue": "q" * 101}, {"queue": "q", "type": "t" * 201}):
        with refused("WB003", "no job can be of this queue or type"):
            db.value("pause", **wrong)


def test_resume_waits_for_a_claim_that_puts_jobs_aside(db: Db) -> None:
    """Else the claim parks a job just after resume has looked for parked ones, and nobody comes back for it."""
    claimer, operator, epoch = db.session(), db.session(), db.node()
    job = db.enqueue("p")
    db.value("pause", type="p")
    claimer.begin()
    claimer.claim(epoch)
    resumed = operator.start("resume", type="p").blocked()
    claimer.commit()
    assert resumed.value() is True
    db.expect(job, wait=None)


def test_a_resume_in_a_transaction_that_was_left_open_holds_up_no_claim(db: Db) -> None:
    """What a claim puts aside meanwhile is found by the chore."""
    operator, epoch = db.session(), db.node()
    paused, other = db.enqueue("p", priority=9), db.enqueue("o")
    db.value("pause", type="p")
    db.value("pause", queue="elsewhere")
    operator.begin()
    operator.value("resume", type="p")
    assert [row.id for row in db.claim(epoch)] == [other]
    operator.commit()
    assert db.value("unpark_paused") == 1
    assert [row.id for row in db.claim(epoch)] == [paused]


def test_claims_do_not_wait_for_each_other_because_of_a_pause(db: Db) -> None:
    one, other = db.session(), db.session()
    first, second = db.node(), db.node()
    db.enqueue("o")
    job = db.enqueue("o")
    db.value("pause", type="p")
    one.begin()
    one.claim(first, 1)
    assert [row.id for row in other.claim(second)] == [job]
    one.commit()


def test_the_chore_unparks_what_no_pause_covers(db: Db) -> None:
    now, later, still = db.enqueue("p"), db.enqueue("p", run_at=db.after(60)), db.enqueue("q")
    db.change("UPDATE {schema}.jobs SET wait = 'paused'")
    db.value("pause", type="q")
    assert db.value("unpark_paused") == 2
    assert [db.look(job).wait for job in (now, later, still)] == [None, "delayed", "paused"]


def test_a_paused_unsupported_job_is_found_again(db: Db) -> None:
    stranger, expert = db.node(), db.node(types={"p": 1})
    job = db.enqueue("p")
    db.settle(stranger, End(db.claim_one(stranger), "unsupported", age=None))
    db.value("pause", type="p")
    assert db.claim(expert) == []
    db.value("resume", type="p")
    assert [row.id for row in db.claim(expert)] == [job]


def test_pauses_and_resumes_are_audited(db: Db) -> None:
    db.value("pause", queue="a", type="t", reason="rain")
    db.now += timedelta(hours=1)
    db.value("resume", queue="a", type="t")
    paused, resumed = db.rows("audit")
    assert (paused.action, paused.subject, paused.detail) == ("pause", "queue a type t", {"reason": "rain"})
    assert (resumed.action, resumed.subject, resumed.at) == ("resume", "queue a type t", db.now)
    assert paused.at == db.after(-3600)

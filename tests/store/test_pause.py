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


def test_claim_parks_jobs_of_a_paused_type_until_resume(db: Db) -> None:
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
def test_claim_finds_jobs_behind_paused_ones(db: Db, max_attempts: int) -> None:
    epoch = db.node()
    for _ in range(10):
        db.enqueue("p", priority=9, max_attempts=max_attempts)
    other = db.enqueue("o", max_attempts=max_attempts)
    db.value("pause", type="p")
    assert [row.id for row in db.claim(epoch, 2)] == [other]


def test_claim_that_met_only_paused_jobs_sets_more_of_them_aside(db: Db) -> None:
    """So that later claims do not read them; it takes no more jobs than it may."""
    epoch = db.node()
    first, job, second, last = (db.enqueue(name) for name in "popo")
    db.value("pause", type="p")
    assert [row.id for row in db.claim(epoch, 1)] == [job]
    assert [db.look(each).wait for each in (first, second, last)] == ["paused", "paused", None]


def test_claim_parks_a_quarantined_job_of_a_paused_type(db: Db) -> None:
    lost = db.node()
    job = db.enqueue("p")
    db.claim(lost)
    db.lose(lost)
    epoch = db.node()
    db.make_ready()
    db.value("pause", type="p")
    assert db.claim(epoch, alone=True) == []
    db.expect(job, wait="paused", quarantined=True)
    db.value("resume", type="p")
    assert [row.id for row in db.claim(epoch, alone=True)] == [job]


def test_pause_does_not_affect_a_running_job(db: Db) -> None:
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


def test_job_stays_paused_until_both_pauses_end(db: Db) -> None:
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


def test_second_pause_or_resume_returns_false(db: Db) -> None:
    assert db.value("pause", queue="a") is True
    assert db.value("pause", queue="a") is False
    assert db.value("pause", queue="a", type="t") is True
    assert db.value("resume", queue="a") is True
    assert db.value("resume", queue="a") is False
    with refused("WB003", "pause needs a queue or a type"):
        db.value("pause")


def test_pause_refuses_an_invalid_queue_or_type(db: Db) -> None:
    for wrong in ({"queue": ""}, {"type": ""}, {"queue": "q" * 101}, {"queue": "q", "type": "t" * 201}):
        with refused("WB003", "queue or type is invalid"):
            db.value("pause", **wrong)


def test_resume_waits_for_a_claim_that_parks_jobs(db: Db) -> None:
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


def test_open_resume_transaction_does_not_block_claims(db: Db) -> None:
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


def test_concurrent_claims_do_not_wait_during_a_pause(db: Db) -> None:
    one, other = db.session(), db.session()
    first, second = db.node(), db.node()
    db.enqueue("o")
    job = db.enqueue("o")
    db.value("pause", type="p")
    one.begin()
    one.claim(first, 1)
    assert [row.id for row in other.claim(second)] == [job]
    one.commit()


def test_unpark_paused_frees_jobs_that_no_pause_covers(db: Db) -> None:
    now, later, still = db.enqueue("p"), db.enqueue("p", run_at=db.after(60)), db.enqueue("q")
    for job in (now, later, still):
        db.set_wait(job, "paused")
    db.value("pause", type="q")
    assert db.value("unpark_paused") == 2
    assert [db.look(job).wait for job in (now, later, still)] == [None, "delayed", "paused"]


def test_resumed_unsupported_job_is_claimed_by_a_node_that_knows_it(db: Db) -> None:
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

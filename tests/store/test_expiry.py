"""Jobs that end as canceled because their first handler has not started in time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.store.harness import T0, Db, refused

EXPIRED = {"kind": "expired", "message": "it expired: it had not started by 2031-03-14 09:27:03 UTC"}
SHORT: dict[str, Any] = {"expires_in": timedelta(seconds=10)}


def assert_expired(db: Db, *jobs: UUID) -> None:
    for job in jobs:
        db.expect(job, state="canceled", run=0, error=EXPIRED, outcome=None)
        assert db.attempts(job) == []


def test_a_job_that_has_not_started_in_time_is_canceled(db: Db) -> None:
    by_duration, by_time, forever = db.enqueue(**SHORT), db.enqueue(expires_at=db.after(10)), db.enqueue()
    db.expect(by_duration, expires_at=db.after(10))
    assert db.value("promote") == db.after(10)
    db.tick(9.999)
    db.value("promote")
    assert db.states(by_duration, by_time, forever) == ["queued", "queued", "queued"]
    db.tick(0.001)
    assert db.value("promote") is None
    assert_expired(db, by_duration, by_time)
    db.expect(forever, state="queued", expires_at=None)
    db.assert_sound()


def test_a_claim_takes_no_job_that_has_expired(db: Db) -> None:
    """It ends them, although no chore has come to them yet, and takes those that come after them."""
    expired = [db.enqueue(**SHORT) for _ in range(3)]
    epoch, in_time, other = db.node(), db.enqueue(expires_in=timedelta(seconds=11)), db.enqueue()
    db.tick(10)
    assert [row.id for row in db.claim(epoch, 2)] == [in_time, other]
    assert_expired(db, *expired)
    assert db.claim(epoch) == []
    db.assert_sound()


def test_a_claim_finds_a_job_behind_many_that_have_expired(db: Db) -> None:
    db.call("enqueue_many", jobs=[{"type": "task", "expires_in": "10 seconds"}] * 900)
    db.tick(1)
    job, epoch = db.enqueue(), db.node()
    db.tick(10)
    assert [row.id for row in db.claim(epoch, 1)] == [job]


def test_a_claim_takes_none_of_very_many_jobs_that_have_expired(db: Db) -> None:
    """It does not end all of them, because it must not take long."""
    db.call("enqueue_many", jobs=[{"type": "task", "expires_in": "10 seconds"}] * 1100)
    db.tick(10)
    epoch = db.node()
    assert db.claim(epoch, 5) == []
    assert 1000 < db.count("finished_jobs") < 1100
    db.assert_sound()


def test_a_job_that_expires_is_not_claimed_ahead(db: Db) -> None:
    """So a job that is claimed starts."""
    first, second = db.enqueue(**SHORT), db.enqueue(**SHORT)
    epoch = db.node()
    assert [row.id for row in db.claim(epoch, 100, free=1)] == [first]
    db.tick(10)
    db.value("promote")
    assert db.states(first) == ["running"]
    assert_expired(db, second)


def test_a_job_that_is_moved_to_another_queue_is_still_not_claimed_ahead(db: Db) -> None:
    db.enqueue(**SHORT)
    condition = {"field": "queue", "operator": "=", "values": ["default"]}
    db.call("start_operation", kind="move_queue", conditions=[condition], arguments={"queue": "other"})
    db.value("run_operations")
    assert db.claim(db.node(), 5, free=0, queues=["other"]) == []


@pytest.mark.parametrize("outcome", ["failed", "snoozed", "timed_out"])
def test_a_job_that_has_started_does_not_expire(db: Db, outcome: str) -> None:
    job, epoch = db.enqueue(**SHORT), db.node()
    assert db.run(epoch, outcome, delay=timedelta(seconds=60)) in ("failed", "queued")
    db.expect(job, expires_at=None)
    db.tick(60)
    db.value("promote")
    assert db.run(epoch, "succeeded") == "succeeded"


def test_a_lost_job_does_not_expire(db: Db) -> None:
    job, epoch = db.enqueue(**SHORT), db.node()
    db.claim(epoch)
    assert db.lose(epoch) == {job: "failed"}
    db.make_ready()
    assert [row.id for row in db.claim(db.node(), alone=True)] == [job]


@pytest.mark.parametrize("outcome", ["released", "unsupported"])
def test_a_job_that_was_given_back_before_it_started_expires(db: Db, outcome: str) -> None:
    job, epoch = db.enqueue(**SHORT), db.node()
    assert db.run(epoch, outcome, age=None) == "queued"
    db.tick(10)
    db.value("promote")
    db.expect(job, state="canceled", error=EXPIRED)


def test_jobs_expire_whatever_they_wait_for(db: Db) -> None:
    parent = db.enqueue()
    db.call("set_limit", name="crm", max=1)
    holder, epoch = db.enqueue(limit_keys=["crm"]), db.node()
    assert {row.id for row in db.claim(epoch)} == {parent, holder}
    waiting = {
        "blocked": db.enqueue(depends_on=[parent], **SHORT),
        "scheduled": db.enqueue(delay=timedelta(seconds=9), **SHORT),
        "limited": db.enqueue(limit_keys=["crm"], **SHORT),
        "paused": db.enqueue(queue="mail", **SHORT),
    }
    db.call("pause", queue="mail")
    assert db.claim(epoch) == []
    assert {db.look(job).waits or "blocked" for job in waiting.values()} == waiting.keys()
    db.tick(10)
    db.value("promote")
    assert_expired(db, *waiting.values())
    db.assert_sound()


def test_children_treat_an_expired_job_as_a_canceled_one(db: Db) -> None:
    parent = db.enqueue(**SHORT)
    child, alternative = db.enqueue(depends_on=[parent]), db.enqueue(depends_on=[parent], run_if="any_failed")
    db.tick(10)
    db.value("promote")
    while db.call("unblock"):
        pass
    assert db.states(parent, child, alternative) == ["canceled", "canceled", "queued"]


def test_an_expired_job_lets_the_next_of_its_ordered_key_start(db: Db) -> None:
    payload = {"order": 7}
    first = db.enqueue(ordered_by="{order}", payload=payload, **SHORT)
    second, epoch = db.enqueue(ordered_by="{order}", payload=payload), db.node()
    db.tick(10)
    assert [row.id for row in db.claim(epoch)] == [second]
    assert_expired(db, first)


def test_an_expired_job_makes_room_for_a_parked_one_of_its_ordered_key(db: Db) -> None:
    options: dict[str, Any] = {"ordered_by": "{order}", "payload": {"order": 7}}
    first = db.enqueue(delay=timedelta(seconds=9), **options, **SHORT)
    second, epoch = db.enqueue(**options), db.node()
    assert db.claim(epoch) == []
    db.expect(second, wait="parked")
    db.tick(10)
    db.value("promote")
    assert [row.id for row in db.claim(epoch)] == [second]
    assert_expired(db, first)


def test_a_job_that_is_late_already_ends_at_once(db: Db) -> None:
    job = db.enqueue(expires_at=db.after(-5))
    assert db.claim(db.node()) == []
    db.expect(job, state="canceled")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"delay": timedelta(seconds=11), **SHORT}, "it would expire at .*, before it may start at"),
        ({"run_at": T0 + timedelta(minutes=1), **SHORT}, "it would expire at .*, before it may start at"),
        ({"run_at": T0 + timedelta(minutes=1), "expires_at": T0}, "it would expire at .*, before it may start at"),
        ({"debounce_wait": timedelta(seconds=11), **SHORT}, "it would expire at .*, before it may start at"),
        ({"expires_at": T0, **SHORT}, "give expires_at or expires_in, not both"),
        ({"expires_in": timedelta(0)}, "expires_in must be more than 0 and at most 100 years"),
    ],
)
def test_an_expiry_that_cannot_be_is_refused(db: Db, options: dict[str, Any], words: str) -> None:
    with refused("WB003", words):
        db.enqueue(**options)
    given = {name: f"{value.total_seconds()} seconds" if isinstance(value, timedelta) else value.isoformat()
             for name, value in options.items()}  # fmt: skip
    with refused("WB003", words):
        db.call("enqueue_many", jobs=[{"type": "task"}, {"type": "task", **given}])


def test_many_jobs_expire_each_at_its_time(db: Db) -> None:
    jobs = [{"type": "task", "expires_at": db.after(5).isoformat()}, {"type": "task", "expires_in": "8 seconds"}]
    one, two = (row.id for row in db.call("enqueue_many", jobs=jobs))
    assert db.value("promote") == db.after(5)
    db.tick(5)
    assert db.value("promote") == db.after(3)
    assert db.states(one, two) == ["canceled", "queued"]


def test_no_more_than_asked_for_expire_at_once(db: Db) -> None:
    db.call("enqueue_many", jobs=[{"type": "task", "expires_in": "10 seconds"}] * 3)
    db.tick(10)
    assert db.value("promote", max=2) <= db.now
    assert db.count("finished_jobs") == 2
    assert db.value("promote", max=2) is None


def test_promote_comes_back_for_a_job_that_was_locked(db: Db) -> None:
    job, other = db.enqueue(**SHORT), db.session()
    db.tick(10)
    other.begin()
    other.execute(b"SELECT FROM watchbill.jobs FOR UPDATE")
    assert db.value("promote") == db.after(1)
    other.commit()
    assert db.value("promote") is None
    assert_expired(db, job)


def test_a_claim_that_came_first_keeps_its_job(db: Db) -> None:
    job, epoch, claiming = db.enqueue(**SHORT), db.node(), db.session()
    claiming.begin()
    assert [row.id for row in claiming.claim(epoch)] == [job]
    db.tick(10)
    db.value("promote")
    claiming.commit()
    db.value("promote")
    assert db.states(job) == ["running"]


def test_a_job_that_replaces_another_expires_as_it_says(db: Db) -> None:
    job = db.enqueue(unique_by="a", **SHORT)
    assert db.enqueue(unique_by="a", on_duplicate="replace") == job
    db.expect(job, expires_at=None)
    db.enqueue(unique_by="a", on_duplicate="replace", **SHORT)
    db.tick(10)
    db.value("promote")
    assert_expired(db, job)


def test_an_expired_job_can_be_run_by_hand(db: Db) -> None:
    job = db.enqueue(**SHORT)
    db.tick(10)
    db.value("promote")
    assert db.value("reschedule", id=job) == "canceled"
    assert [row.id for row in db.claim(db.node())] == [job]


def test_a_job_is_not_put_off_beyond_its_expiry(db: Db) -> None:
    job = db.enqueue(**SHORT)
    with refused("WB003", "it would expire at .*, before it may start at"):
        db.value("reschedule", id=job, run_at=db.after(11))
    assert db.value("reschedule", id=job, run_at=db.after(9)) == "queued"
    db.expect(job, expires_at=db.after(10))


def test_why_says_when_a_job_expires(db: Db) -> None:
    job = db.enqueue(**SHORT)
    db.node(types={"task": 1})
    (ready, expires) = db.call("why_job", id=job)
    assert (ready.cause, expires.cause, expires.rank, expires.until) == ("ready", "expires", 15, db.after(10))
    assert expires.reason.startswith("it ends as canceled if it has not started by 2031-03-14")
    db.tick(10)
    assert db.call("why_job", id=job)[0].reason.endswith("and ends as canceled within seconds")
    db.value("promote")
    (ended,) = db.call("why_job", id=job)
    assert ended.reason.endswith("it expired: it had not started by 2031-03-14 09:27:03 UTC")


def test_a_job_of_a_schedule_expires_after_its_slot(db: Db) -> None:
    db.call("add_schedule", name="poll", every=timedelta(minutes=5), type="task", expires=timedelta(seconds=90))
    (row,) = db.call("schedule_list")
    assert row.expires == timedelta(seconds=90)
    db.now = row.next_run + timedelta(seconds=30)  # the tick is late
    db.call("tick")
    ((job,),) = db.execute(b"SELECT id FROM watchbill.jobs")
    db.expect(job, expires_at=row.next_run + timedelta(seconds=90))
    db.tick(60)
    db.value("promote")
    db.expect(job, state="canceled")
    (slot,) = db.rows("slot")
    assert slot.outcome == "canceled"


def test_a_slot_that_is_caught_up_too_late_is_canceled(db: Db) -> None:
    db.call("add_schedule", name="poll", every=timedelta(minutes=5), type="task", expires=timedelta(seconds=90))
    db.tick(3700)
    db.call("tick")
    assert db.claim(db.node()) == []
    assert {slot.outcome for slot in db.rows("slot")} == {"missed", "canceled"}


def test_a_schedule_whose_jobs_would_expire_before_they_start_is_refused(db: Db) -> None:
    given = {"name": "poll", "every": timedelta(minutes=5), "type": "task", "jitter": timedelta(seconds=91)}
    with refused("WB003", "jitter .* must not be longer than expires"):
        db.call("add_schedule", expires=timedelta(seconds=90), **given)
    with refused("WB003", "expires must be more than 0 and at most 365 days"):
        db.call("add_schedule", expires=timedelta(0), **given)


def test_the_survey_says_when_the_next_job_expires(db: Db) -> None:
    epoch = db.node()
    assert db.row("_survey", epoch=epoch, queues=["default"]).next_delayed_in is None
    job = db.enqueue(**SHORT)
    assert db.row("_survey", epoch=epoch, queues=["default"]).next_delayed_in == 10
    assert [row.id for row in db.claim(epoch)] == [job]
    assert db.row("_survey", epoch=epoch, queues=["default"]).next_delayed_in is None

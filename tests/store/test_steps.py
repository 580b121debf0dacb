"""save_steps, load_steps, wake and the outcome `suspended`: who may store what, and that no wake-up is lost."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.store.harness import Db, End, Session, refused, settlement

HOUR = timedelta(hours=1)


def step(job: Any, name: str = "charge", result: Any = None, **more: Any) -> dict[str, Any]:
    """The arguments of `save_steps` for one step. `job` is a row of `claim`."""
    one = {
        "kinds": "run", "states": "done", "seqs": 1, "versions": 1, "tries": 1, "digests": None,
        "results": result,
    } | more  # fmt: skip
    return {"ids": [job.id], "fences": [job.fence], "names": [name]} | {key: [value] for key, value in one.items()}


def sleep(job: Any, name: str = "sleep", seconds: float = 3600, **more: Any) -> dict[str, Any]:
    return step(job, name, kinds="sleep", states="waiting", delays=timedelta(seconds=seconds), **more)


def stored(db: Db) -> dict[str, tuple[str, Any]]:
    return {row.name: (row.state, row.result) for row in db.rows("steps", "seq")}


def claimed(db: Db) -> tuple[int, Any]:
    epoch = db.node()
    db.enqueue()
    return epoch, db.claim_one(epoch)


def suspend(db: Session, epoch: int, job: Any, **more: Any) -> None:
    assert db.call("save_steps", **sleep(job, **more)) == []
    assert db.settle(epoch, End(job, "suspended")) == {job.id: "queued"}


def test_a_stored_step_stays_as_it_is(db: Db) -> None:
    _, job = claimed(db)
    assert db.call("save_steps", **step(job, result=1)) == []
    assert db.call("save_steps", **step(job, result=2)) == []  # it was sent again: the reply was lost
    assert stored(db) == {"charge": ("done", 1)}


def test_another_run_cannot_replace_a_stored_step(db: Db) -> None:
    epoch, job = claimed(db)
    db.call("save_steps", **step(job, result=1))
    db.settle(epoch, End(job, "failed", delay=timedelta()))
    db.make_ready()
    again = db.claim_one(epoch)
    assert [row.place for row in db.call("save_steps", **step(again, result=2))] == [1]
    assert stored(db) == {"charge": ("done", 1)}


def test_only_the_holder_of_the_fence_stores_steps(db: Db) -> None:
    epoch, job = claimed(db)
    other = db.enqueue()
    row = db.claim_one(epoch)
    db.value("release", id=job.id)
    both = step(job)
    mine = step(row)
    sent = {key: both[key] + mine[key] for key in both}
    assert [row.place for row in db.call("save_steps", **sent)] == [1]
    assert [row.job_id for row in db.rows("steps")] == [other]
    assert db.call("save_steps", **step(job._replace(fence=0))) != []


@pytest.mark.parametrize("takes", ["release", "cancel"])
def test_what_takes_a_job_away_waits_for_a_step_that_is_being_stored(db: Db, takes: str) -> None:
    epoch, job = claimed(db)
    worker, operator = db.session(), db.session()
    worker.begin()
    assert worker.call("save_steps", **step(job, result=1)) == []
    more = {"force": True} if takes == "cancel" else {}
    taking = operator.start(takes, id=job.id, **more).blocked()
    worker.commit()
    taking.rows()
    assert stored(db) == {"charge": ("done", 1)}
    if takes == "release":
        (row,) = db.call("load_steps", ids=[db.claim_one(epoch).id])
        assert (row.name, row.result) == ("charge", 1)


def test_a_late_step_waits_for_the_release_and_is_refused(db: Db) -> None:
    _, job = claimed(db)
    worker, operator = db.session(), db.session()
    operator.begin()
    operator.value("release", id=job.id)
    late = worker.start("save_steps", **step(job)).blocked()
    operator.commit()
    assert [row.place for row in late.rows()] == [1]
    assert stored(db) == {}


def test_a_lost_node_is_not_reclaimed_while_its_step_is_being_stored(db: Db) -> None:
    lost, job = claimed(db)
    worker = db.session()
    worker.begin()
    worker.call("save_steps", **step(job))
    assert db.lose(lost) == {}
    worker.commit()
    assert db.reclaim(lost) == {job.id: "failed"}


def test_a_job_that_sleeps_is_held_by_nobody_until_it_is_due(db: Db) -> None:
    epoch, job = claimed(db)
    suspend(db, epoch, job)
    db.expect(job.id, state="suspended", waits=None, run_at=db.after(3600), attempt=0, fence=None)
    assert db.attempts(job.id) == []
    (reason,) = db.call("why_job", id=job.id)
    assert (reason.cause, reason.until) == ("suspended", db.after(3600))
    assert reason.reason.startswith("it sleeps in step sleep until")
    db.value("promote")
    assert db.claim(epoch) == []
    db.make_ready()
    db.expect(job.id, state="queued", waits="ready")
    assert db.claim_one(epoch).run == 2
    db.assert_sound()


def test_a_wake_time_that_is_stored_stays(db: Db) -> None:
    epoch, job = claimed(db)
    db.call("save_steps", **sleep(job))
    db.value("release", id=job.id)  # the run was lost before it could suspend
    db.tick(60)
    suspend(db, epoch, db.claim_one(epoch))
    db.expect(job.id, run_at=db.after(3600 - 60))


def test_a_job_whose_wake_time_has_passed_is_ready_at_once(db: Db) -> None:
    epoch, job = claimed(db)
    db.call("save_steps", **sleep(job, seconds=1))
    db.tick(2)
    db.settle(epoch, End(job, "suspended"))
    db.expect(job.id, state="queued", waits="ready")


def test_a_job_without_an_open_step_is_ready_at_once(db: Db) -> None:
    epoch, job = claimed(db)
    db.settle(epoch, End(job, "suspended"))
    db.expect(job.id, state="queued", waits="ready")


def test_waking_a_job_waits_for_its_suspension_and_is_not_lost(db: Db) -> None:
    epoch, job = claimed(db)
    db.call("save_steps", **sleep(job))
    worker, operator = db.session(), db.session()
    worker.begin()
    worker.call("settle", **settlement(epoch, End(job, "suspended")))
    waking = operator.start("wake", id=job.id).blocked()
    worker.commit()
    assert waking.value() == 1
    db.expect(job.id, state="queued", waits="ready")
    (row,) = db.call("load_steps", ids=[job.id])
    assert row.remaining <= 0


def test_a_suspension_sees_what_was_committed_while_it_waited_for_the_job(db: Db) -> None:
    """The decision is a statement of its own, after the lock: the one that waits has an older snapshot."""
    epoch, job = claimed(db)
    db.call("save_steps", **sleep(job))
    worker, operator = db.session(), db.session()
    operator.begin()
    operator.execute(b"SELECT FROM watchbill.jobs WHERE id = %s FOR UPDATE", (job.id,))
    operator.execute(b"UPDATE watchbill.steps SET wake_at = %s", (db.now,))
    ending = worker.start("settle", **settlement(epoch, End(job, "suspended"))).blocked()
    operator.commit()
    ending.rows()
    db.expect(job.id, state="queued", waits="ready")


def test_a_suspended_job_ends_when_it_is_canceled(db: Db) -> None:
    epoch, job = claimed(db)
    suspend(db, epoch, job)
    assert db.value("cancel", id=job.id) == "canceled"
    assert stored(db)["sleep"][0] == "waiting"  # a retry continues with it


def test_a_stop_request_wins_against_a_suspension(db: Db) -> None:
    epoch, job = claimed(db)
    db.call("save_steps", **sleep(job))
    db.value("cancel", id=job.id)
    assert db.settle(epoch, End(job, "suspended")) == {job.id: "canceled"}


def test_a_suspended_job_is_not_rescheduled_and_not_replaced(db: Db) -> None:
    epoch = db.node()
    db.enqueue(payload={"n": 1}, unique_by="key", unique_until="finished")
    job = db.claim_one(epoch)
    suspend(db, epoch, job)
    with refused("WB008", "waits in a step"):
        db.value("reschedule", id=job.id)
    with refused("WB014"):
        db.enqueue(payload={"n": 2}, unique_by="key", unique_until="started", on_duplicate="replace")
    assert db.look(job.id).payload == {"n": 1}


def test_a_retry_continues_and_a_repetition_begins_anew(db: Db) -> None:
    epoch, job = claimed(db)
    db.call("save_steps", **step(job))
    db.settle(epoch, End(job, "failed", error={"kind": "permanent"}))
    db.value("reschedule", id=job.id)
    assert "charge" in stored(db)
    db.run(epoch, "succeeded")
    assert "charge" in stored(db)
    db.value("reschedule", id=job.id)
    assert stored(db) == {}


def test_a_loss_after_a_stored_step_begins_a_new_row_of_losses(db: Db) -> None:
    db.enqueue()
    for number in range(5):
        epoch = db.node()
        db.make_ready()
        job = db.claim_one(epoch, alone=number > 0)
        assert db.call("save_steps", **step(job, f"step {number}")) == []
        assert db.lose(epoch) == {job.id: "failed"}
        db.expect(job.id, lost=1)


def save_one(db: Session, job: Any, name: str = "book", **more: Any) -> Any:
    return db.value("save_step", id=job.id, fence=job.fence, name=name, **more)


def test_a_step_is_stored_with_the_commit_of_its_writes(db: Db) -> None:
    epoch, job = claimed(db)
    worker = db.session()
    worker.begin()
    assert save_one(worker, job, result=1) is True
    releasing = db.session().start("release", id=job.id).blocked()
    worker.commit()
    releasing.rows()
    again = db.claim_one(epoch)
    assert save_one(db, again, result=2) is False  # its effects are committed: roll back
    assert stored(db) == {"book": ("done", 1)}
    with refused("WB007"):
        save_one(db, job, name="other")


def test_a_step_that_has_begun_is_open_and_wakes_no_job(db: Db) -> None:
    epoch, job = claimed(db)
    assert db.call("save_steps", **step(job, "send", states="begun")) == []
    suspend(db, epoch, job, seqs=2)
    assert [row.name for row in db.call("waiting_steps")] == ["sleep"]
    db.value("wake", id=job.id)
    again = db.claim_one(epoch)
    assert save_one(db, again, name="send") is True


def test_each_pause_between_two_tries_replaces_the_one_before(db: Db) -> None:
    epoch, job = claimed(db)
    pause: dict[str, Any] = {"states": "retrying", "errors": {"type": "BankDown", "message": "503"}}
    assert db.call("save_steps", **step(job, **pause, delays=HOUR, tries=1)) == []
    assert db.settle(epoch, End(job, "suspended")) == {job.id: "queued"}
    (reason, *_) = db.call("why_job", id=job.id)
    assert "step charge failed, 1 times until now (BankDown: 503); its next try is due at" in reason.reason
    assert db.value("wake", id=job.id) == 1
    again = db.claim_one(epoch)
    assert db.call("save_steps", **step(again, **pause, delays=2 * HOUR, tries=2)) == []
    (row,) = db.rows("steps")
    assert (row.tries, row.wake_at) == (2, db.now + 2 * HOUR)


def test_steps_are_deleted_with_their_job(db: Db) -> None:
    epoch = db.node()
    kept, purged, gone = [db.enqueue() for _ in range(3)]
    for _ in range(3):
        db.call("save_steps", **step(db.claim_one(epoch)))
    db.settle(epoch, *[End(row) for row in db.rows("jobs") if row.id != kept])
    db.value("purge", states=["succeeded"], ids=[purged])
    assert {row.job_id for row in db.rows("steps")} == {kept, gone}
    db.change("DELETE FROM {schema}.finished_jobs")  # as retention does, with a whole partition
    assert db.value("sweep_steps", max=1) is not None
    assert db.value("sweep_steps") is None
    assert [row.job_id for row in db.rows("steps")] == [kept]


def test_a_job_of_another_tenant_with_the_same_id_has_steps_of_its_own(db: Db) -> None:
    epoch = db.node()
    job: UUID = db.enqueue(tenant="a")
    db.call("save_steps", **step(db.claim_one(epoch), result="a"))
    db.settle(epoch, End(db.rows("jobs")[0], error={"kind": "permanent"}, outcome="failed"))
    db.change("UPDATE {schema}.finished_jobs SET tenant = 'b'")
    db.change("UPDATE {schema}.steps SET tenant = 'b'")
    db.change(
        "INSERT INTO {schema}.jobs (id, run_at, created_at, queue, type, tenant, payload) "
        "VALUES (%s, %s, %s, 'default', 't', 'a', '{{}}')", job, db.now, db.now,
    )  # fmt: skip
    row = db.claim_one(epoch)
    assert db.call("load_steps", ids=[job]) == []
    assert db.call("save_steps", **step(row, result="b")) == []
    db.change("DELETE FROM {schema}.finished_jobs")


@pytest.mark.parametrize("seed", range(20))
def test_two_workers_of_which_one_is_late_agree_with_a_dict(db: Db, seed: int) -> None:
    """Random programs of steps and sleeps; releases, losses, wake-ups and promotions in between."""
    chance = random.Random(seed)
    model: dict[str, Any] = {}
    job = db.enqueue(max_attempts=1000)
    holder: Any = None
    late: list[Any] = []
    epoch = 0
    for number in range(60):
        verb = chance.choice(["claim", "save", "save", "late", "sleep", "release", "lose", "wake", "promote"])
        if verb == "claim" and holder is None:
            epoch = db.node()
            rows = db.claim(epoch, 1) or db.claim(epoch, 1, alone=True)
            holder = rows[0] if rows else None
            if holder is not None:
                found = {row.name: row.result for row in db.call("load_steps", ids=[job]) if row.kind == "run"}
                assert found == model
        elif verb == "save" and holder is not None:
            name = f"step {chance.randrange(20)}"
            answer = db.call("save_steps", **step(holder, name, result=number, seqs=number))
            if name not in model:
                assert answer == []
                model[name] = number
        elif verb == "late" and late:
            name = f"step {chance.randrange(20)}"
            old = chance.choice(late)
            before = stored(db)
            db.call("save_steps", **step(old, name, result=-1))
            assert stored(db) == before
        elif verb == "sleep" and holder is not None:
            suspend(db, epoch, holder, name=f"sleep {number}", seconds=chance.choice([0.5, 60]), seqs=number)
            late.append(holder)
            holder = None
        elif verb == "release" and holder is not None:
            db.value("release", id=job)
            late.append(holder)
            holder = None
        elif verb == "lose" and holder is not None and chance.random() < 0.3:
            db.lose(epoch)
            late.append(holder)
            holder = None
        else:
            db.tick(chance.choice([1, 100]))
            db.value("promote") if verb == "promote" else db.value("wake", id=job)
        row = db.look(job)
        if row.state in ("dead", "canceled"):
            assert row.lost == 3
            break
        assert (row.state == "running") == (holder is not None)
        assert {name: result for name, (_, result) in stored(db).items() if not name.startswith("sleep")} == model
    db.assert_sound()


def test_a_single_result_is_stored_under_the_fence_and_only_once(db: Db) -> None:
    _, job = claimed(db)
    one = {"id": job.id, "name": "charge", "seq": 1, "version": 1, "digest": 5, "age": 1.0, "has_undo": False}
    assert db.value("_save_result", fence=job.fence - 1, result=1, **one) is False
    assert db.value("_save_result", fence=job.fence, result=1, **one) is True
    assert db.value("_save_result", fence=job.fence, result=2, **one) is False  # save_steps() finds it stored
    assert db.call("save_steps", **step(job, result=2)) == []
    assert stored(db) == {"charge": ("done", 1)}
    other = db.session()
    other.begin()
    assert other.value("_save_result", fence=job.fence, result=3, **(one | {"name": "ship"})) is True
    released = db.session().start("release", id=job.id).blocked()
    other.commit()
    assert released.value() is True
    assert db.value("_save_result", fence=job.fence, result=4, **(one | {"name": "late"})) is False
    assert db.value("_save_result", fence=0, result=4, **(one | {"name": "late"})) is False

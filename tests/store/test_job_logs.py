"""Log lines of jobs in SQL: under the fence of the run, once, for the tenant of the job, and gone with it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from tests.store.harness import Db, End
from tests.waiting import until

DAY = timedelta(days=1)


def fail(db: Db, epoch: int, lines: str, **job: Any) -> tuple[UUID, int]:
    """Enqueues, claims and fails a job whose handler has logged these lines."""
    job_id = db.enqueue(max_attempts=1, **job)
    held = db.claim_one(epoch)
    db.value("_store_logs", ids=[job_id], fences=[held.fence], texts=[lines])
    db.settle(epoch, End(held, "failed", error={"kind": "retryable"}))
    return job_id, held.fence


def test_lines_are_stored_once_under_the_fence_of_the_run(db: Db) -> None:
    epoch = db.node()
    job, fence = fail(db, epoch, "one\ntwo")
    assert db.value("_store_logs", ids=[job], fences=[fence], texts=["again"]) == 0
    assert db.value("_store_logs", ids=[job], fences=[fence + 1], texts=["of another run"]) == 0
    ((run, _, lines),) = db.call("job_log", id=job)
    assert (run, lines) == (1, ["one", "two"])


def test_purge_removes_the_lines(db: Db) -> None:
    job, _ = fail(db, db.node(), "one")
    kept, _ = fail(db, db.node(), "two")
    db.value("purge", states=["dead"], ids=[job])
    assert db.call("job_log", id=job) == []
    assert [row.job_id for row in db.rows("job_logs")] == [kept]


def test_erasure_removes_lines_and_looks_of_its_tenant(own_db: Db) -> None:
    epoch = own_db.node()
    fail(own_db, epoch, "theirs", tenant="gone")
    kept, _ = fail(own_db, epoch, "ours")
    waiting = own_db.enqueue(tenant="gone")
    assert own_db.value("watch", id=waiting)
    until(lambda: own_db.row("erase_tenant", tenant="gone").is_done)
    assert [row.job_id for row in own_db.rows("job_logs")] == [kept]
    assert own_db.rows("watches") == []


def test_retention_drops_whole_days(own_db: Db) -> None:
    own_db.value("make_partitions", days=1)
    fail(own_db, own_db.node(), "one")
    own_db.tick(timedelta(days=3).total_seconds())
    until(lambda: own_db.row("prune_history", parent="job_logs", keep=DAY).done is None)
    assert own_db.count("job_logs") == 0


def test_retention_deletes_old_rows_of_days_without_a_partition(db: Db) -> None:
    fail(db, db.node(), "one")
    db.tick(timedelta(days=3).total_seconds())
    kept, _ = fail(db, db.node(), "two")
    until(lambda: db.row("prune_history", parent="job_logs", keep=DAY).done is None)
    assert [row.job_id for row in db.rows("job_logs")] == [kept]


def test_a_look_ends_and_its_row_goes_with_the_next_one(db: Db) -> None:
    epoch = db.node()
    one, two = db.enqueue(), db.enqueue()
    held = db.claim(epoch)
    assert db.value("watch", id=one, duration="10 seconds")
    assert db.call("_watched_jobs", ids=[one, two])[0][0] == one
    db.tick(11)
    assert db.call("_watched_jobs", ids=[one, two]) == []
    assert db.value("watch", id=two)
    assert [row.job_id for row in db.rows("watches")] == [two]
    db.settle(epoch, *(End(each, "succeeded") for each in held))
    assert not db.value("watch", id=one)


def test_looks_of_a_tenant_that_end_first_give_way(db: Db) -> None:
    """Each node reads all looks each second."""
    db.call("enqueue_many", jobs=[{"type": "task"}] * 1001)
    first, *others = db.execute("SELECT id FROM watchbill.jobs ORDER BY seq")
    other_tenant = db.enqueue(tenant="b")
    assert db.value("watch", id=other_tenant, duration="1 second")
    assert db.value("watch", id=first.id, duration="5 seconds")
    db.execute("SELECT watchbill.watch(id, now => %s) FROM watchbill.jobs WHERE tenant = 'default' AND id <> %s",
               (db.now, first.id))  # fmt: skip
    watched = {row.job_id for row in db.rows("watches")}
    assert watched == {row.id for row in others} | {other_tenant}


def test_shown_lines_belong_to_the_current_run_and_survive_a_heartbeat(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue()
    held = db.claim_one(epoch)
    running = {"id": str(job), "fence": held.fence, "age": 1}
    db.call("_show_runs", epoch=epoch, running=[running | {"progress": 3, "lines": "one\ntwo"}])
    db.call("heartbeat", epoch=epoch, running=[running])
    ((run, ended_at, lines),) = db.call("job_log", id=job)
    assert (run, ended_at, lines) == (1, None, ["one", "two"])
    db.settle(epoch, End(held, "released"))
    db.claim_one(epoch)
    assert db.call("job_log", id=job) == []

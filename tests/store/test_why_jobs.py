"""Why the jobs of a queue, a type or a tenant wait: causes with their counts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from tests.store.harness import Db


def sums(db: Db, **of: Any) -> dict[str, int]:
    return {row.cause: row.jobs for row in db.call("why_jobs", **of)}


def fill(db: Db, queue: str, number: int) -> None:
    db.change(
        """INSERT INTO {schema}.jobs (id, run_at, created_at, queue, type, payload)
           SELECT gen_random_uuid(), %s, %s, %s, 'task', jsonb_build_object('fill', repeat('x', 900))
           FROM generate_series(1, %s)""",
        db.now, db.now, queue, number,
    )  # fmt: skip


def test_the_causes_of_a_queue_are_counted_with_an_example_each(db: Db) -> None:
    db.node(types={"task": 1}, queues=["default"])
    for _ in range(3):
        db.enqueue()
    unsupported = [db.enqueue("unknown") for _ in range(2)]
    delayed = db.enqueue(delay=timedelta(hours=2))
    db.enqueue(queue="mail")
    rows = db.call("why_jobs", queue="default")
    assert [(row.cause, row.jobs, row.is_estimate) for row in rows] == [
        ("behind", 3, False),
        ("unsupported", 2, False),
        ("delayed", 1, False),
    ]
    assert [row.example for row in rows[1:]] == [unsupported[-1], delayed]
    assert [row.needs_action for row in rows] == [False, True, False]
    assert rows[1].reason == "no live node handles its type unknown"
    assert sums(db, type="unknown") == {"unsupported": 2}
    assert sums(db, tenant="default") == {"behind": 3, "unsupported": 2, "delayed": 1, "unserved": 1}


def test_a_pause_counts_every_job_that_waits_for_it(db: Db) -> None:
    epoch = db.node()
    jobs: list[UUID] = [db.enqueue() for _ in range(4)]
    running = db.claim_one(epoch).id
    db.call("pause", queue="default", reason="rain")
    assert sums(db, queue="default") == {"paused": 3, "running": 1}
    (row,) = [row for row in db.call("why_jobs", queue="default") if row.cause == "paused"]
    assert row.example in set(jobs) - {running}
    assert row.way_out == ["watchbill queues resume default"]


def test_kinds_beyond_the_most_frequent_are_summed_as_other(db: Db) -> None:
    db.node()
    for number in range(25):
        db.enqueue(f"t{number}")
    assert sum(sums(db, queue="default").values()) == 25
    assert sums(db, queue="default")["other"] == 5


def test_a_large_table_is_sampled_and_a_rare_queue_found_by_its_index(db: Db) -> None:
    db.node(queues=["default"])
    fill(db, "default", 30_000)
    (row,) = [row for row in db.call("why_jobs", queue="default") if row.cause == "behind"]
    assert row.is_estimate
    assert 24_000 < row.jobs < 36_000
    db.enqueue(queue="rare")
    (row,) = db.call("why_jobs", queue="rare")
    assert (row.cause, row.is_estimate) == ("unserved", True)
    assert 1 <= row.jobs < 20  # one job of the index, or a multiple if the sample has its page

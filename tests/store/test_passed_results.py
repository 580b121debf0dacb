"""Results of earlier jobs that the database writes into the payloads of those that waited for them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.store.harness import NOBODY, Db, End, refused


def finish(db: Db, epoch: int, job: Any, result: Any = None, outcome: str = "succeeded") -> None:
    db.settle(epoch, End(job, outcome, result=result, error={"kind": "permanent"} if outcome == "failed" else None))
    while db.call("unblock"):
        pass


def claim_all(db: Db, epoch: int) -> dict[UUID, Any]:
    return {row.id: row for row in db.claim(epoch)}


def test_a_parameter_takes_the_result_of_a_parent(db: Db) -> None:
    parent, epoch = db.enqueue("pay"), db.node()
    child = db.enqueue("ship", depends_on=[parent], results={"receipt": str(parent)}, payload={"order": 7})
    finish(db, epoch, db.claim_one(epoch), {"number": 5})
    assert db.claim_one(epoch).payload == {"order": 7, "receipt": {"number": 5}}
    db.expect(child, state="running")
    db.assert_sound()


def texts(jobs: list[UUID]) -> list[str]:
    return [str(job) for job in jobs]


def test_a_list_has_the_results_in_the_order_that_was_named(db: Db) -> None:
    parents, epoch = [db.enqueue("part") for _ in range(12)], db.node()
    order = [parents[n] for n in (3, 0, 11, 2, 1, 10, 9, 8, 7, 6, 5, 4)]
    db.enqueue("total", depends_on=parents, results={"parts": texts(order)})
    jobs = claim_all(db, epoch)
    for number, parent in enumerate(parents):
        finish(db, epoch, jobs[parent], number)
    assert db.claim_one(epoch).payload == {"parts": [3, 0, 11, 2, 1, 10, 9, 8, 7, 6, 5, 4]}


def test_positions_name_jobs_of_the_same_call(db: Db) -> None:
    epoch = db.node()
    db.call("enqueue_many", jobs=[
        {"type": "total", "depends_on": [1, 2], "results": {"first": 2, "parts": [1, 2]}},
        {"type": "part"},
        {"type": "part"},
    ])  # fmt: skip
    for number, row in enumerate(db.claim(epoch)):
        finish(db, epoch, row, f"result {number}")
    assert db.claim_one(epoch).payload == {"first": "result 1", "parts": ["result 0", "result 1"]}


def test_a_parent_that_ended_before_gives_its_result_at_once(db: Db) -> None:
    parent, epoch = db.enqueue("pay"), db.node()
    finish(db, epoch, db.claim_one(epoch), "paid")
    db.enqueue("ship", depends_on=[parent], results={"receipt": str(parent)})
    assert db.claim_one(epoch).payload == {"receipt": "paid"}


@pytest.mark.parametrize(("outcome", "state"), [("failed", "dead"), ("skipped", "succeeded")])
def test_a_parent_without_a_result_gives_null(db: Db, outcome: str, state: str) -> None:
    parents, epoch = [db.enqueue("part"), db.enqueue("part")], db.node()
    db.enqueue("total", depends_on=parents, run_if="all_finished", results={"parts": texts(parents)})
    jobs = claim_all(db, epoch)
    finish(db, epoch, jobs[parents[0]], outcome=outcome)
    db.expect(parents[0], state=state)
    finish(db, epoch, jobs[parents[1]], 2)
    assert db.claim_one(epoch).payload == {"parts": [None, 2]}


def test_a_parent_that_runs_again_gives_its_new_result(db: Db) -> None:
    parent, epoch = db.enqueue("pay"), db.node()
    child = db.enqueue(
        "ship", depends_on=[parent], results={"receipt": str(parent)}, delay=timedelta(hours=1), max_attempts=2
    )
    finish(db, epoch, db.claim_one(epoch), "first")
    assert db.look(child).payload == {"receipt": "first"}
    db.value("reschedule", id=child)
    finish(db, epoch, db.claim_one(epoch), outcome="failed")
    db.expect(child, state="dead")
    db.value("reschedule", id=parent)
    finish(db, epoch, db.claim_one(epoch), "second")
    db.value("reschedule", id=child)
    assert db.claim_one(epoch).payload == {"receipt": "first"}, "a child that has run stays as it is"


def test_a_child_that_waits_again_gets_the_new_result(db: Db) -> None:
    parent, other, epoch = db.enqueue("pay"), db.enqueue("pack"), db.node()
    db.enqueue("ship", depends_on=[parent, other], results={"receipt": str(parent)})
    jobs = claim_all(db, epoch)
    finish(db, epoch, jobs[parent], "first")
    db.value("reschedule", id=parent)
    finish(db, epoch, jobs[other])
    finish(db, epoch, db.claim_one(epoch), "second")
    assert db.claim_one(epoch).payload == {"receipt": "second"}


def test_retention_keeps_a_result_that_a_waiting_job_takes(own_db: Db) -> None:
    """In a database of its own, because it drops the days from which other tests count."""
    own_db.call("make_partitions", parents=["finished_succeeded"])
    parent, other, epoch = own_db.enqueue("pay"), own_db.enqueue("pack"), own_db.node()
    own_db.enqueue("ship", depends_on=[parent, other], results={"receipt": str(parent)})
    jobs = claim_all(own_db, epoch)
    finish(own_db, epoch, jobs[parent], "paid")
    own_db.tick(3 * 86_400)
    while own_db.row("prune_history", parent="finished_succeeded", keep=timedelta(days=1)).more:
        pass
    assert own_db.call("job_by_id", id=parent) == []
    finish(own_db, epoch, jobs[other])
    assert own_db.claim_one(epoch).payload == {"receipt": "paid"}


def test_a_parent_that_retention_removed_and_that_ran_again_gives_its_new_result(db: Db) -> None:
    parent, other, epoch = db.enqueue("pay"), db.enqueue("pack"), db.node()
    child = db.enqueue("ship", depends_on=[parent, other], results={"receipt": str(parent)})
    jobs = claim_all(db, epoch)
    finish(db, epoch, jobs[parent], "first")
    db.change("UPDATE {schema}.dependencies SET result = '\"kept\"' WHERE child = %s AND parent = %s", child, parent)
    db.value("reschedule", id=parent)
    finish(db, epoch, db.claim_one(epoch), "second")
    finish(db, epoch, jobs[other])
    assert db.claim_one(epoch).payload == {"receipt": "second"}


def test_results_stand_beside_the_reference_to_a_payload_store(db: Db) -> None:
    parent, epoch = db.enqueue("pay"), db.node()
    db.enqueue("ship", depends_on=[parent], results={"receipt": str(parent)}, payload={"$stored": "abc"})
    finish(db, epoch, db.claim_one(epoch), 5)
    assert db.claim_one(epoch).payload == {"$stored": "abc", "$results": {"receipt": 5}}


def test_results_that_are_too_large_to_be_sent_cancel_the_job(db: Db) -> None:
    parents, epoch = [db.enqueue("part"), db.enqueue("part")], db.node()
    child = db.enqueue("total", depends_on=parents, results={"parts": texts(parents)})
    db.claim(epoch)
    db.change(
        "WITH d AS (DELETE FROM {schema}.jobs WHERE type = 'part' RETURNING *)"
        " INSERT INTO {schema}.finished_succeeded (id, seq, run_at, created_at, finished_at, lane, run, policy,"
        " version, priority, attempt, max_attempts, lost, state, queue, type, tenant, payload, result)"
        " SELECT id, seq, run_at, created_at, created_at, 0, 1, 1, 1, 0, 1, 10, 0, 'succeeded', queue, type, tenant,"
        " payload, to_jsonb(repeat('x', 60000000)) FROM d"
    )
    db.change("UPDATE {schema}.dependencies SET outcome = 'succeeded'")
    db.change("INSERT INTO {schema}.dependency_checks (id, what, at) VALUES (%s, 'child', %s)", child, db.now)
    db.call("unblock")
    found = db.look(child)
    assert found.state == "canceled"
    assert found.error["message"] == "the results that it takes make a payload of more than 100000000 bytes"


def test_a_repeated_enqueue_with_a_key_is_the_same_job(db: Db) -> None:
    """For its idempotency key the payload counts as it was written."""
    parent, epoch = db.enqueue("pay"), db.node()
    options: dict[str, Any] = {"depends_on": [parent], "results": {"receipt": str(parent)}, "idempotency_key": "k"}
    child = db.enqueue("ship", payload={"order": 7}, **options)
    finish(db, epoch, db.claim_one(epoch), "paid")
    again = db.send("ship", payload={"order": 7}, **options)
    assert (again.id, again.created, again.payload_differs) == (child, False, False)


PARENT = "00000000-0000-7000-8000-000000000001"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"results": [1]}, "results must be a JSON object"),
        ({"results": {"a": 1}}, "results must be a JSON object"),
        ({"results": {"a": str(NOBODY)}}, "results names job .*, which is not in depends_on"),
        ({"results": {"a": [PARENT, PARENT]}}, "results names a job twice for a"),
        ({"results": {"a": PARENT}, "payload": {"a": 1}}, "a has a value in the payload, and a result of another job"),
        ({"results": {"a": PARENT}, "ordered_by": "{a}"}, "needs the parameter 'a', which the payload lacks"),
        ({"results": {"a": PARENT}, "unique_by": "{a}"}, "needs the parameter 'a', which the payload lacks"),
        ({"results": {"a": PARENT}, "unique_until": "started"}, "the unique key cannot be made of all arguments"),
        ({"results": {"a": PARENT}, "unique_by": "x", "on_duplicate": "replace"}, "excludes on_duplicate=replace"),
    ],
)
def test_results_that_cannot_be_passed_are_refused(db: Db, options: dict[str, Any], words: str) -> None:
    db.enqueue("pay", id=UUID(PARENT), id_is_new=False)
    with refused("WB003", words):
        db.enqueue("ship", depends_on=[UUID(PARENT)], **options)


def test_shares_of_a_fair_queue_are_not_made_of_results(db: Db) -> None:
    parent = db.enqueue("pay")
    db.change("INSERT INTO {schema}.queues (name, lanes, fair_by) VALUES ('fair', 'share', '{{account}}')")
    with refused("WB003", "account cannot be a result: the shares of queue 'fair' are made of it"):
        db.enqueue("ship", queue="fair", depends_on=[parent], results={"account": str(parent)})

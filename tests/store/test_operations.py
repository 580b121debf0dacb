"""Bulk operations: steps, counts, crashes, pauses, whose jobs they change, and what they refuse."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.store.harness import Db, End, Session, refused
from watchbill.filters.condition import write_conditions
from watchbill.filters.parser import parse_filter


def start(db: Session, kind: str, text: str, **more: Any) -> int:
    conditions = json.loads(write_conditions(parse_filter(text)))
    operation: int = db.value("start_operation", kind=kind, conditions=conditions, filter=text, **more)
    return operation


def look(db: Db, operation: int) -> Any:
    (row,) = [each for each in db.rows("bulk_operations") if each.id == operation]
    return row


def work_off(db: Session, steps: int = 100) -> int:
    """Does all steps; returns how many there were."""
    for step in range(1, steps + 1):
        if db.value("run_operations") is None:
            return step
    raise AssertionError("it does not end")


def kill(db: Db, count: int, **more: Any) -> list[UUID]:
    """So many dead jobs."""
    epoch = db.node()
    jobs = [db.enqueue(max_attempts=1, **more) for _ in range(count)]
    taken = db.claim(epoch, count, queues=[more.get("queue", "default")])
    db.settle(epoch, *(End(each, "failed", error={"message": "boom"}) for each in taken))
    return jobs


def count_states(db: Db) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in db.rows("job"):
        found[row.state] = found.get(row.state, 0) + 1
    return found


def test_each_job_is_retried_once_in_steps(db: Db) -> None:
    kill(db, 1100)
    operation = start(db, "retry", "type:task")
    assert work_off(db) >= 3
    assert count_states(db) == {"queued": 1100}
    done = look(db, operation)
    assert (done.state, done.seen, done.done, done.skipped, done.failed) == ("done", 1100, 1100, 0, 0)
    assert db.count("attempts") == 1100, "a job that is retried twice has two"
    assert db.value("run_operations") is None


def test_step_that_does_not_commit_is_repeated(db: Db) -> None:
    kill(db, 20)
    operation = start(db, "retry", "type:task", rate=5)
    killed = db.session(db.url)
    killed.begin()
    killed.value("run_operations")
    db.execute("SELECT pg_terminate_backend(%s, 10000)", (killed.connection.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        killed.commit()
    assert (look(db, operation).seen, count_states(db)) == (0, {"dead": 20})
    db.value("run_operations")
    assert (look(db, operation).seen, count_states(db)) == (5, {"dead": 15, "queued": 5})


def test_two_nodes_never_do_the_same_step(db: Db) -> None:
    kill(db, 10)
    start(db, "retry", "type:task")
    other = db.session()
    other.begin()
    assert other.value("run_operations") is None
    assert db.value("run_operations") == pytest.approx(0.1), "the other node does the step"
    other.commit()
    assert db.value("run_operations") is None
    assert count_states(db) == {"queued": 10}


def test_rate_spreads_the_steps(db: Db) -> None:
    kill(db, 25)
    operation = start(db, "retry", "type:task", rate=10)
    assert db.value("run_operations") == 1
    assert db.value("run_operations") == 1, "it is not time for the next step"
    assert look(db, operation).done == 10
    db.tick(1)
    db.value("run_operations")
    db.tick(1)
    assert db.value("run_operations") is None
    assert look(db, operation).done == 25


def test_operation_is_paused_resumed_and_canceled(db: Db) -> None:
    kill(db, 30)
    operation = start(db, "retry", "type:task", rate=10)
    db.value("run_operations")
    assert db.value("pause_operation", id=operation) == "paused"
    assert db.value("pause_operation", id=operation) == "paused"
    db.tick(60)
    assert db.value("run_operations") is None
    assert look(db, operation).done == 10
    assert db.value("resume_operation", id=operation) == "running"
    db.value("run_operations")
    assert db.value("cancel_operation", id=operation) == "canceled"
    db.tick(60)
    assert db.value("run_operations") is None
    assert db.value("resume_operation", id=operation) == "canceled", "it has ended"
    assert (look(db, operation).done, look(db, operation).ended_at is None) == (20, False)
    assert db.value("pause_operation", id=operation + 1) is None
    actions = [row.action for row in db.rows("audit") if row.subject == f"operation {operation}"]
    assert actions == ["start_operation", "pause_operation", "resume_operation", "cancel_operation"]


def test_only_jobs_that_existed_at_its_start_count(db: Db) -> None:
    kill(db, 3)
    operation = start(db, "retry", "state:dead")
    db.tick(1)
    late = kill(db, 2)
    work_off(db)
    assert look(db, operation).done == 3
    assert db.states(*late) == ["dead", "dead"]


def test_times_from_now_count_from_its_start(db: Db) -> None:
    (old,) = kill(db, 1)
    db.tick(100)
    (young,) = kill(db, 1)
    start(db, "retry", "created>-50s")
    db.tick(1000)
    work_off(db)
    assert db.states(old, young) == ["dead", "queued"]


def test_operation_takes_the_states_that_suit_it(db: Db) -> None:
    kill(db, 1)
    epoch = db.node()
    for outcome in ("succeeded", "failed"):
        db.enqueue()
        db.run(epoch, outcome)
    db.enqueue()
    db.claim_one(epoch)
    waiting = db.enqueue()
    db.value("cancel", id=db.enqueue())
    taken = {}
    for kind, more in (
        ("set_priority", {"priority": 7}), ("release", {}), ("retry", {}), ("cancel", {}), ("purge", {}),
    ):  # fmt: skip
        operation = start(db, kind, "type:task", arguments=more)
        work_off(db)
        taken[kind] = (look(db, operation).done, look(db, operation).skipped)
        if kind == "set_priority":
            db.expect(waiting, priority=7)
    assert taken == {"set_priority": (2, 0), "release": (1, 0), "retry": (2, 0), "cancel": (4, 0), "purge": (6, 0)}
    assert count_states(db) == {}


def test_jobs_that_it_cannot_change_are_counted_with_the_reason(db: Db) -> None:
    kill(db, 2)
    db.enqueue()
    operation = start(db, "retry", "state:dead,queued")
    work_off(db)
    found = look(db, operation)
    assert (found.done, found.skipped, found.reasons) == (2, 1, {"it is queued": 1})


def test_locked_job_stops_no_other(db: Db) -> None:
    jobs = [db.enqueue() for _ in range(3)]
    other = db.session()
    other.begin()
    other.execute("SELECT FROM watchbill.jobs WHERE id = %s FOR UPDATE", (jobs[1],))
    operation = start(db, "cancel", "type:task")
    work_off(db)
    other.rollback()
    found = look(db, operation)
    assert (found.state, found.done, found.failed) == ("done", 2, 1)
    assert found.reasons == {"another transaction has locked it": 1}
    assert db.states(*jobs) == ["canceled", "queued", "canceled"]


def test_audit_names_the_creator(db: Db) -> None:
    kill(db, 2)
    db.configure(**{"watchbill.actor": "anna"})
    operation = start(db, "retry", "type:task")
    db.configure(**{"watchbill.actor": ""})
    work_off(db)
    assert look(db, operation).created_by == "anna"
    assert {row.actor for row in db.rows("audit") if row.action == "reschedule"} == {"anna"}
    assert db.execute("SELECT current_setting('watchbill.actor', true) AS actor")[0].actor == ""


def test_idempotency_key_starts_one_operation(db: Db) -> None:
    first = start(db, "retry", "type:task", idempotency_key="k")
    assert start(db, "retry", "type:task", idempotency_key="k") == first
    with refused("WB014", "another operation has the idempotency key 'k'"):
        start(db, "purge", "type:task", idempotency_key="k")
    db.configure(**{"watchbill.actor": "ben"})
    assert start(db, "retry", "type:task", idempotency_key="k") != first
    db.configure(**{"watchbill.actor": ""})


def test_most_jobs_end_it(db: Db) -> None:
    kill(db, 5)
    operation = start(db, "retry", "type:task", max_jobs=2)
    work_off(db)
    assert (look(db, operation).state, count_states(db)) == ("done", {"queued": 2, "dead": 3})


def test_purge_deletes_jobs_with_attempts_and_frees_their_keys(db: Db) -> None:
    kill(db, 3)
    kept = db.enqueue()
    start(db, "purge", "state:dead")
    work_off(db)
    assert [row.id for row in db.rows("job")] == [kept]
    assert db.count("attempts") == 0
    assert [row.subject for row in db.rows("audit") if row.action == "purge"] == ["3 jobs"]


def test_moved_job_gets_the_lane_of_its_new_queue(db: Db) -> None:
    db.change("INSERT INTO {schema}.queues (name, lanes, fair_by) VALUES ('fair', 'share', '{{user}}')")
    job = db.enqueue(payload={"user": "u1"})
    paused = db.enqueue("other", payload={"user": "u2"})
    labeled = db.enqueue(payload={"user": "u3"}, runs_on={"gpu": "a100"})
    db.set_wait(paused, "paused")
    expected = db.enqueue(payload={"user": "u1"}, queue="fair")
    operation = start(db, "move_queue", "queue:default", arguments={"queue": "fair"})
    work_off(db)
    lanes = {row.id: (row.queue, row.lane, row.wait) for row in db.rows("jobs")}
    assert lanes[job] == lanes[expected]
    assert lanes[paused][::2] == ("fair", None)
    assert lanes[labeled][0] == "default", "jobs of a fair queue cannot ask for labels"
    assert look(db, operation).failed == 1
    start(db, "move_queue", "queue:fair", arguments={"queue": "plain"})
    work_off(db)
    assert {(row.queue, row.lane) for row in db.rows("jobs") if row.id != labeled} == {("plain", 0)}


@pytest.mark.parametrize(("kind", "conditions", "more", "message"), [
    ("repeat", [{"field": "type", "operator": "=", "values": ["a"]}], {}, "kind is invalid"),
    ("retry", [], {}, "conditions are invalid"),
    ("retry", [{"field": "type", "operator": "is", "values": ["a"]}], {}, "the condition"),
    ("retry", [{"field": "type", "operator": "=", "values": ["a"]}], {"rate": 0}, "rate is invalid"),
    ("retry", [{"field": "type", "operator": "=", "values": ["a"]}], {"rate": float("nan")}, "rate is invalid"),
    ("retry", [{"field": "type", "operator": "=", "values": ["a"]}], {"max_jobs": 0}, "max_jobs is invalid"),
    ("set_priority", [{"field": "type", "operator": "=", "values": ["a"]}], {}, "arguments are invalid"),
    ("set_priority", [{"field": "type", "operator": "=", "values": ["a"]}], {"arguments": {"priority": 99999}},
     "arguments are invalid"),
    ("move_queue", [{"field": "type", "operator": "=", "values": ["a"]}], {"arguments": {"queue": ""}},
     "arguments are invalid"),
    ("move_queue", [{"field": "type", "operator": "=", "values": ["a"]}], {"arguments": {"queue": "q" * 101}},
     "arguments are invalid"),
    ("cancel", [{"field": "type", "operator": "=", "values": ["a"]}], {"arguments": {"reason": "y" * 10_000}},
     "arguments are invalid"),
    ("cancel", [{"field": "type", "operator": "=", "values": ["y" * 1_000_000]}], {}, "conditions are invalid"),
])  # fmt: skip
def test_senseless_operations_are_refused(
    db: Db, kind: str, conditions: list[Any], more: dict[str, Any], message: str
) -> None:
    with refused("WB003", message):
        db.value("start_operation", kind=kind, conditions=conditions, **more)


def test_ended_operations_are_deleted_after_a_while(db: Db) -> None:
    operation = start(db, "retry", "type:task")
    running = start(db, "retry", "type:task", rate=1)
    db.value("cancel_operation", id=operation)
    db.tick(91 * 86_400)
    assert db.value("prune_operations") == 1
    assert [row.id for row in db.rows("bulk_operations")] == [running]
    db.value("cancel_operation", id=running)

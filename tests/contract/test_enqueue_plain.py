"""A job takes one of two ways into the database, by its kind, and cannot be told by its way."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row

from watchbill.client import operations
from watchbill.client.client import Client
from watchbill.client.operations import Operation
from watchbill.errors import WatchbillError
from watchbill.model.ids import new_id
from watchbill.model.job import AlikeJobs, AllCreated, Enqueued, NewJob

PLAIN: list[dict[str, Any]] = [
    {},
    {"payload": b'{"n": 1, "text": "\\u2603"}'},
    {"type": "x" * 200, "queue": "q" * 100, "tenant": "t" * 200},
    {"priority": 32767, "max_attempts": 32767, "version": 2**31 - 1},
    {"priority": -32768, "max_attempts": 2},
    {"timeout": 0.25},
    {"created_by": "somebody", "meta": b'{"trace": "1"}'},
]
OTHERS: list[dict[str, Any]] = [
    {"type": ""},
    {"type": "x" * 201},
    {"type": "watchbill.sql"},
    {"queue": ""},
    {"queue": "q" * 101},
    {"tenant": "t" * 201},
    {"priority": 32768},
    {"max_attempts": 0},
    {"version": 0},
    {"timeout": 0.0},
    {"timeout": 400 * 86_400.0},
    {"payload": b"[1]"},
    {"meta": b"5"},
]


@pytest.fixture
def client(schema_database: str) -> Iterator[Client]:
    with Client(schema_database) as client:
        yield client


def make(fields: dict[str, Any], job_id: UUID | None = None) -> NewJob:
    return NewJob(job_id or new_id(), "task", b"{}")._replace(**fields)


def gather(jobs: list[NewJob]) -> AlikeJobs:
    alike = AlikeJobs.gather(jobs)
    assert alike is not None
    return alike


def queries_of(operation: Operation[Any]) -> list[str]:
    return [next(operation).query]


def stored(url: str, job_id: UUID) -> dict[str, Any]:
    """The row of a job, without what differs between any two jobs."""
    with psycopg.connect(url, row_factory=dict_row) as connection:
        row = connection.execute("SELECT * FROM watchbill.jobs WHERE id = %s", (job_id,)).fetchone()
    assert row is not None
    assert row["run_at"] == row["created_at"]
    return {name: value for name, value in row.items() if name not in ("id", "seq", "run_at", "created_at")}


@pytest.mark.parametrize("fields", PLAIN, ids=lambda fields: str(fields)[:40])
def test_both_ways_store_the_same_row(client: Client, schema_database: str, fields: dict[str, Any]) -> None:
    job, twin = make(fields), make(fields)
    assert queries_of(operations.enqueue(job, new_ids=True)) == ["enqueue_plain"]
    assert queries_of(operations.enqueue(twin)) == ["enqueue"]
    answer = client.run(operations.enqueue(job, new_ids=True))
    other = client.run(operations.enqueue(twin))
    assert (answer.id, answer.created, answer.payload_differs) == (job.id, True, False)
    assert other.seq == answer.seq + 1
    assert stored(schema_database, job.id) == stored(schema_database, twin.id)


@pytest.mark.parametrize("fields", PLAIN, ids=lambda fields: str(fields)[:40])
def test_bulk_of_jobs_of_one_kind_stores_the_same_rows(
    client: Client, schema_database: str, fields: dict[str, Any]
) -> None:
    jobs = [make(fields)._replace(payload=b'{"n": %d}' % number) for number in range(3)]
    twins = [job._replace(id=new_id()) for job in jobs]
    alike = gather(jobs)
    assert list(alike) == jobs
    assert operations.can_enqueue_alike(alike)
    assert queries_of(operations.enqueue_alike(alike)) == ["enqueue_plain_many"]
    assert queries_of(operations.enqueue_many(twins)) == ["enqueue_many"]
    answers = client.run(operations.enqueue_alike(alike))
    client.run(operations.enqueue_many(twins))
    assert [(answer.id, answer.created) for answer in answers] == [(job.id, True) for job in jobs]
    for job, twin in zip(jobs, twins, strict=True):
        assert stored(schema_database, job.id) == stored(schema_database, twin.id)


def test_bulk_of_different_jobs_takes_the_other_way() -> None:
    different: list[dict[str, Any]] = [{"type": "other"}, {"queue": "other"}, {"meta": b"{}"}, {"delay": 1.0}]
    for fields in different:
        assert AlikeJobs.gather([make({}), make(fields)]) is None, fields
    assert AlikeJobs.gather([]) is None
    assert not operations.can_enqueue_alike(gather([make({}), make({"payload": b"[]"})]))
    special: list[dict[str, Any]] = [{"delay": 1.0}, {"idempotency_key": "k"}, {"limit_keys": ("k",)}]
    for fields in special + OTHERS:
        assert not operations.can_enqueue_alike(gather([make(fields), make(fields)])), fields


def test_part_of_alike_jobs_is_the_same_as_of_a_list() -> None:
    jobs = [make({"payload": b'{"n": %d}' % number}) for number in range(5)]
    alike = gather(jobs)
    assert (len(alike), alike[1], alike[-1], list(alike[1:3])) == (5, jobs[1], jobs[-1], jobs[1:3])
    assert list(alike.replace(tenant="a")) == [job._replace(tenant="a") for job in jobs]
    answers = AllCreated(alike.ids)
    assert list(answers[3:]) == [Enqueued(job.id, 0, True, False) for job in jobs[3:]]


def test_bulk_of_one_kind_that_is_sent_again_makes_no_second_jobs(client: Client, schema_database: str) -> None:
    jobs = [make({"payload": b'{"n": %d}' % number}) for number in range(3)]
    client.run(operations.enqueue_alike(gather(jobs[:2])))
    answers = client.run(operations.enqueue_alike(gather(jobs), resend=True))
    assert [(answer.id, answer.created) for answer in answers] == [(job.id, True) for job in jobs]
    with psycopg.connect(schema_database) as connection:
        found = connection.execute("SELECT id FROM watchbill.jobs ORDER BY seq").fetchall()
    assert [row[0] for row in found] == [job.id for job in jobs]


def test_bulk_of_one_kind_into_a_fair_queue_gets_its_lanes(client: Client, schema_database: str) -> None:
    with psycopg.connect(schema_database) as connection:
        connection.execute("INSERT INTO watchbill.queues (name, lanes, fair_by) VALUES ('fair', 'share', '{n}')")
    jobs = [make({"queue": "fair", "payload": b'{"n": %d}' % number, "timeout": 2.5}) for number in (1, 1, 2)]
    client.run(operations.enqueue_alike(gather(jobs)))
    first, again, other = [stored(schema_database, job.id) for job in jobs]
    assert first == again
    assert 0 != first["lane"] != other["lane"] != 0
    assert first["timeout"] == 2.5


def test_bulk_of_one_kind_refuses_what_enqueue_refuses(client: Client) -> None:
    milliseconds = int((datetime.now(UTC) + timedelta(hours=2)).timestamp() * 1000)
    ahead = UUID(int=(milliseconds << 80) | (7 << 76) | (2 << 62))
    with pytest.raises(WatchbillError, match="at most an hour ahead of the database's clock"):
        client.run(operations.enqueue_alike(gather([make({}), make({}, ahead)])))


@pytest.mark.parametrize("fields", OTHERS, ids=lambda fields: str(fields)[:40])
def test_invalid_jobs_take_the_way_that_checks_them(client: Client, fields: dict[str, Any]) -> None:
    with pytest.raises(WatchbillError, match="is invalid"):
        client.run(operations.enqueue(make(fields), new_ids=True))


def test_id_of_the_future_is_refused_on_both_ways(client: Client) -> None:
    milliseconds = int((datetime.now(UTC) + timedelta(hours=2)).timestamp() * 1000)
    ahead = UUID(int=(milliseconds << 80) | (7 << 76) | (2 << 62))
    for new_ids in (True, False):
        with pytest.raises(WatchbillError, match="at most an hour ahead of the database's clock"):
            client.run(operations.enqueue(make({}, ahead), new_ids=new_ids))


def test_id_of_another_version_is_stored_on_both_ways(client: Client, schema_database: str) -> None:
    for new_ids, digit in ((True, "e"), (False, "f")):
        job_id = UUID(f"{digit * 8}-6f0c-4e0b-9d3c-2f6a1c5b7e11")
        assert client.run(operations.enqueue(make({}, job_id), new_ids=new_ids)).created
        assert stored(schema_database, job_id)["type"] == "task"


@pytest.mark.parametrize("fields", [{}, {"delay": 0.0}], ids=["plain", "not plain"])
def test_job_wakes_a_sleeping_worker_on_both_ways(client: Client, schema_database: str, fields: dict[str, Any]) -> None:
    with psycopg.connect(schema_database, autocommit=True) as sleeper:
        sleeper.execute(
            "SELECT pg_advisory_lock(watchbill._lock_class_wakeup(), watchbill._wake_lock_key()),"
            " set_config('search_path', 'watchbill', false)"
        )
        channel = sleeper.execute("SELECT _wake_channel()").fetchone()
        assert channel is not None
        sleeper.execute(f"LISTEN {channel[0]}".encode())
        client.run(operations.enqueue(make({"queue": "mail"} | fields), new_ids=True))
        (notification,) = sleeper.notifies(timeout=60, stop_after=1)
    assert notification.payload == "ready mail"

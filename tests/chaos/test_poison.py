"""One job that kills every process it runs in, among ten thousand innocent ones: it alone is dead in the end."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.chaos import application, journal
from tests.chaos.checker import check
from tests.chaos.history import History
from tests.chaos.server import EFFECTS, OBSERVER
from tests.chaos.workers import Workers
from tests.servers import _place
from tests.waiting import until
from watchbill.client import operations
from watchbill.client.client import Client
from watchbill.model.ids import new_id

INNOCENT, PROCESSES = 10_000, 8
SETTINGS = {"lease": "2", "poll_interval": "50ms", "poll_max_interval": "500ms", "concurrency": "4"}


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="poison-", dir=_place()) as name:
        yield Path(name)


@pytest.mark.timeout(300)
def test_only_the_poison_job_among_thousands_ends_dead(schema_database: str, directory: Path) -> None:
    _enqueue(schema_database, journal.Journal(directory))
    workers = Workers(directory, directory, SETTINGS)
    supervisor = workers.start(schema_database, "--processes", str(PROCESSES))
    try:
        until(lambda: not _left(schema_database), patience=240)
        supervisor.signal(signal.SIGTERM)
        assert supervisor.process.wait(60) == 0, supervisor.text()
    finally:
        workers.kill_all()
    history = History.of_records(journal.read(directory))
    history.read_tables(schema_database)
    assert check(history) == []
    others = [row for row in history.tables["finished_jobs"] if row["state"] != "succeeded"]
    assert [(row["type"], row["outcome"], row["lost"]) for row in others] == [("poison", "lost", 3)]
    assert len(history.tables["finished_jobs"]) == INNOCENT + 1


def _enqueue(url: str, records: journal.Journal) -> None:
    tasks = [application.quick] * INNOCENT
    tasks.insert(INNOCENT // 2, application.poison)
    jobs = [task.using(id=new_id()).new_job(b"{}") for task in tasks]
    for job in jobs:
        records.write("sent", id=job.id, type=job.type)
    with psycopg.connect(url) as connection:
        connection.execute(EFFECTS)
        connection.execute(OBSERVER.read_bytes())
    with Client(url) as client:
        for job, answer in zip(jobs, client.run_in_transaction(operations.enqueue_many(jobs)), strict=True):
            records.write("acknowledged", id=job.id, answer=answer.id, created=True)


def _left(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        (row,) = connection.execute(
            "SELECT (SELECT count(*) FROM watchbill.jobs) + (SELECT count(*) FROM watchbill.claims)"
        ).fetchall()
        return int(row[0])

"""A worker whose job was given to another meanwhile: its word counts for nothing.

The same story is told with a settle() whose fence check was taken out, to see that the checker would notice.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from tests.chaos import application, journal
from tests.chaos.checker import check
from tests.chaos.history import History
from tests.chaos.server import EFFECTS, OBSERVER
from tests.chaos.workers import Workers
from tests.waiting import until
from watchbill.client import operations
from watchbill.client.client import Client
from watchbill.model.ids import new_id

SETTINGS = {"lease": "1", "poll_interval": "20ms", "poll_max_interval": "100ms", "concurrency": "2"}
CHECK = "AND j.fence = i.fence"
DEFINITION = """SELECT pg_get_functiondef(oid) FROM pg_proc
    WHERE proname = %s AND pronamespace = 'watchbill'::regnamespace"""


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    workers = Workers(tmp_path, tmp_path, SETTINGS)
    yield workers
    workers.kill_all()


def _take_out_the_check(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for name in ("settle", "_settle_each"):
            ((definition,),) = connection.execute(DEFINITION, (name,)).fetchall()
            assert CHECK in definition
            connection.execute(definition.replace(CHECK, "").encode())


def _tell_the_story(url: str, workers: Workers, how: str) -> History:
    """A starts the job; it freezes, or an operator takes the job away; B starts it again; A ends it, and then B."""
    directory = workers.journal
    job = _enqueue(url, journal.Journal(directory))
    first = workers.start(url)
    until(lambda: _count(directory, "start") == 1)
    if how == "freeze":
        first.freeze()
        workers.start(url)
    else:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SELECT watchbill.release(%s)", (job,))
    until(lambda: _count(directory, "start") == 2)
    first.thaw()
    return _end_of_the_story(url, workers)


def _tell_it_without_heartbeats(url: str, workers: Workers) -> History:
    """A is the test itself, so that nobody tells it that the job is another's by now: its word is sure to be sent."""
    records = journal.Journal(workers.journal)
    job = _enqueue(url, records)
    with psycopg.connect(url, autocommit=True) as connection:
        ((epoch,),) = connection.execute("SELECT watchbill.register('by hand', lease => '10 minutes')").fetchall()
        claimed = connection.execute(
            "SELECT fence, run, attempt, type FROM watchbill.claim(%s, '{default}', 1)", (epoch,)
        ).fetchall()
        ((fence, run, attempt, type_),) = claimed
        told = {"id": str(job), "type": type_, "run": run, "attempt": attempt + 1, "fence": fence}
        records.write("start", **told)
        connection.execute("SELECT watchbill.release(%s)", (job,))
        workers.start(url)
        until(lambda: _count(workers.journal, "start") == 2)
        records.write("end", how="returned", **told)
        connection.execute(
            "SELECT * FROM watchbill.settle(%s, ARRAY[%s]::uuid[], ARRAY[%s]::bigint[])", (epoch, job, fence)
        )
        connection.execute("SELECT watchbill.leave(%s)", (epoch,))
    return _end_of_the_story(url, workers)


def _enqueue(url: str, records: journal.Journal) -> UUID:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(EFFECTS)
        connection.execute(OBSERVER.read_bytes())
    job = application.in_thread.using(id=new_id()).new_job(b'{"seconds": 2}')
    records.write("sent", id=job.id, type=job.type)
    with Client(url) as client:
        answer = client.run(operations.enqueue(job))
    records.write("acknowledged", id=job.id, answer=answer.id, created=answer.created)
    return job.id


def _end_of_the_story(url: str, workers: Workers) -> History:
    directory = workers.journal
    until(lambda: _count(directory, "end") == 2)
    until(lambda: _finished(url))
    for worker in workers.all:
        worker.signal(signal.SIGTERM)
        assert worker.process.wait(60) == 0, worker.text()
    history = History.of_records(journal.read(directory))
    history.read_tables(url)
    return history


def _count(directory: Path, what: str) -> int:
    return sum(record["what"] == what for record in journal.read(directory))


def _finished(url: str) -> bool:
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT FROM watchbill.finished_jobs").rowcount == 1


@pytest.mark.parametrize("how", ["freeze", "release"])
def test_a_stale_settle_has_no_effect(schema_database: str, workers: Workers, how: str) -> None:
    history = _tell_the_story(schema_database, workers, how)
    assert check(history) == []
    (end,) = history.tables["finished_jobs"]
    assert (end["state"], end["run"], end["attempt"], end["lost"]) == ("succeeded", 2, 1, 0)


def test_stale_settle_without_heartbeats_has_no_effect(schema_database: str, workers: Workers) -> None:
    assert check(_tell_it_without_heartbeats(schema_database, workers)) == []


def test_checker_notices_a_settle_without_its_fence_check(schema_database: str, workers: Workers) -> None:
    _take_out_the_check(schema_database)
    found = {violation.rule for violation in check(_tell_it_without_heartbeats(schema_database, workers))}
    assert "only_the_last_holder_decides" in found

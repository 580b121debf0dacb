"""Follows one job from `task.enqueue` to its row in the history, and counts the files that a reader has to open.

Python files count when one of their functions was called, on the caller's thread or on the worker's loop, in a process
that has run such jobs before. Several jobs are traced, and a file counts if all of them passed it: chores that a timer
starts meanwhile do not belong to the path. SQL files count when PostgreSQL counted a call of one of their functions;
calls that it inlines do not show.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from uuid import UUID

import psycopg

import watchbill
from watchbill import App
from watchbill.client import operations
from watchbill.model.ids import new_id
from watchbill.model.job import NewJob
from watchbill.store.queries import queries

PACKAGE = Path(watchbill.__file__).parent
# Timers run these beside every job. The tally counts a job after the reply that ends it, when the trace may be over.
CHORES = ("maintenance/", "scheduler/", "worker/tally.py")
MOST_FOR_ENQUEUE, MOST_FOR_JOB, MOST_SQL, LONGEST_FILE = 6, 14, 5, 500
WARM_UP, TRACED = 30, 5


@contextmanager
def _traced() -> Iterator[set[str]]:
    """The files of the package whose functions this thread calls meanwhile."""
    codes: set[Any] = set()

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            codes.add(frame.f_code)

    files: set[str] = set()
    sys.setprofile(profile)
    try:
        yield files
    finally:
        sys.setprofile(None)
        names = [Path(code.co_filename) for code in codes]
        files |= {str(name.relative_to(PACKAGE)) for name in names if name.is_relative_to(PACKAGE)}
        files -= {name for name in files if name.startswith(CHORES)}


def _show(title: str, files: set[str]) -> None:
    print(f"\n{title}: {len(files)} files", *sorted(files), sep="\n  ")
    for name in files:
        length = len((PACKAGE / name).read_text().splitlines())
        assert length <= LONGEST_FILE, f"{name} has {length} lines: the path of a job is not made shorter by long files"


async def _follow(app: App) -> tuple[set[str], set[str]]:
    """What an enqueue passes, and what the worker passes then."""

    @app.task
    async def nothing(number: int) -> int:
        return number

    def enqueue() -> tuple[set[str], UUID]:
        with _traced() as files:
            job = nothing.enqueue(1)
        return files, job.id

    url = app.database_url
    async with app.node():
        for _ in range(WARM_UP):
            warm = await asyncio.to_thread(nothing.enqueue, 1)
            assert await warm.aresult(timeout=60) == 1
        paths = []
        for _ in range(TRACED):
            with _traced() as worker:
                enqueued, job_id = await asyncio.to_thread(enqueue)
                await _until_finished(url, job_id)
            paths.append((enqueued, worker))
    return set.intersection(*(enqueued for enqueued, _ in paths)), set.intersection(*(worker for _, worker in paths))


async def _until_finished(url: str, job_id: UUID) -> None:
    """Asks the database, since `job.result()` would add files to the path; the test's time-out ends it."""
    in_history = "SELECT FROM watchbill.finished_jobs WHERE id = %s AND state = 'succeeded'"
    with psycopg.connect(url, autocommit=True) as connection:
        while not connection.execute(in_history, (job_id,)).fetchall():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def test_a_reader_follows_one_job_through_few_python_files(schema_database: str) -> None:
    app = App(schema_database)
    try:
        enqueued, worker = asyncio.run(_follow(app))
    finally:
        app.close()
    _show("enqueue", enqueued)
    _show("the whole job", enqueued | worker)
    assert any(name.startswith("worker/") for name in worker), "the worker was not traced"
    assert len(enqueued) <= MOST_FOR_ENQUEUE
    assert len(enqueued | worker) <= MOST_FOR_JOB


def test_a_reader_follows_one_job_through_few_sql_files(schema_database: str) -> None:
    by_function = {
        name: str(file.relative_to(PACKAGE))
        for file in sorted(PACKAGE.glob("store/sql/*/*.sql"))
        for name in re.findall(r"CREATE OR REPLACE FUNCTION (\w+)", file.read_text())
    }
    known = queries("watchbill")
    with psycopg.connect(schema_database) as other:
        ((epoch,),) = other.execute("SELECT watchbill.register('reader')").fetchall()
    with psycopg.connect(schema_database) as connection:
        connection.execute("SET track_functions = 'all'")
        job = NewJob(new_id(), "nothing", b"{}")
        enqueue = next(operations.enqueue(job, new_ids=True))
        assert isinstance(enqueue, operations.Statement)
        connection.execute(known[enqueue.query].encode(), enqueue.params)
        (row,) = connection.execute(known["claim"].encode(), (epoch, ["default"], 1, 1, False)).fetchall()
        settled = (epoch, [row[0]], [row[1]], [0.1], [None], [row[1]])
        connection.execute(known["settle_succeeded"].encode(), settled)
        called = connection.execute(
            "SELECT funcname FROM pg_stat_xact_user_functions WHERE schemaname = 'watchbill'"
        ).fetchall()
        connection.rollback()
    assert {"_enqueue_plain", "claim", "settle"} <= {name for (name,) in called}
    files = {by_function[name] for (name,) in called}
    _show("the whole job, SQL", files)
    assert len(files) <= MOST_SQL

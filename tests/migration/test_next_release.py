"""Programs of this release work beside the schema of the next one, as docs/reference/versions.md promises.

The next release is made here: a migration adds a table, columns and an index, and every function is replaced.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.acceptance.command import Watchbill
from tests.waiting import until
from watchbill import App
from watchbill.postgres.migrate import migrate
from watchbill.postgres.migration_files import Migration, Source, SqlFile

TASKS = """
from watchbill import App, Connection, Limit

app = App()


@app.task(retry=5)
async def double(number: int) -> int:
    return 2 * number


@app.task(limits=[Limit(2)])
def write(connection: Connection, number: int) -> int:
    return connection.execute("SELECT %s::int + 1", (number,)).fetchone()[0]


@app.schedule(every=1)
@app.task
def tick() -> None: ...
"""
MANY = 600  # so many are stored by COPY
NEXT = """
CREATE TABLE colors (name text PRIMARY KEY);
ALTER TABLE jobs ADD COLUMN color text;
ALTER TABLE nodes ADD COLUMN color text NOT NULL DEFAULT 'gray';
ALTER TABLE finished_jobs ADD COLUMN color text;
CREATE INDEX jobs_color ON jobs (color) WHERE color IS NOT NULL;
"""


def make_next_release() -> Source:
    now = Source.of_package("watchbill.store")
    added = Migration(
        "9999_next.sql", NEXT, version=now.newest + 1, oldest_compatible=now.migrations[-1].oldest_compatible
    )
    functions = tuple(SqlFile(file.name, f"{file.text}\n-- of the next release\n") for file in now.functions)
    return replace(now, migrations=(*now.migrations, added), functions=functions, watchbill_version="99.0.0")


@pytest.fixture
def project(tmp_path: Path, schema_database: str) -> Watchbill:
    (tmp_path / "shop.py").write_text(TASKS)
    return Watchbill(tmp_path, {"WATCHBILL_DATABASE_URL": schema_database, "WATCHBILL_LEASE": "5"})


@contextmanager
def working(project: Watchbill) -> Iterator[subprocess.Popen[bytes]]:
    worker = subprocess.Popen(project.command("worker", "shop:app"), cwd=project.directory, env=project.environment())
    try:
        yield worker
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    finally:
        worker.kill()
        worker.wait()


def test_programs_of_this_release_work_with_the_schema_of_the_next(project: Watchbill, schema_database: str) -> None:
    app = App(database_url=schema_database)

    @app.task(type="shop.double")
    async def double(number: int) -> int: ...  # type: ignore[empty-body]

    @app.task(type="shop.write")
    def write(number: int) -> int: ...  # type: ignore[empty-body]

    def work_through() -> None:
        jobs = app.enqueue_many([double.bind(n) for n in range(MANY)])
        assert write.enqueue(6).result(timeout=60) == 7
        assert double.using(idempotency_key="k", priority=3, delay=0).enqueue(21).result(timeout=60) == 42
        for number, job in list(enumerate(jobs))[::100]:
            assert job.result(timeout=60) == 2 * number

    try:
        with working(project):
            work_through()
            migrate(schema_database, "watchbill", make_next_release())
            status = project("db", "status")
            assert (status.returncode, "newer" in status.stdout) == (0, True), status.stdout + status.stderr
            work_through()  # a worker and a producer that began before the migration
            slots = len(app.schedules.history("shop.tick"))
            until(lambda: len(app.schedules.history("shop.tick")) > slots)
        with working(project):
            work_through()  # a worker that began after it
        assert project("db", "migrate").returncode == 0
        assert project("db", "status").stdout.startswith(status.stdout.splitlines()[0])  # it was left as it is
    finally:
        app.close()

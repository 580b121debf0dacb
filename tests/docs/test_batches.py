"""docs/howto/batches.md: its program runs, and its numbers are those of the code."""

from __future__ import annotations

from pathlib import Path

import psycopg

from tests.docs.programs import DOCS, blocks, run_program
from watchbill import Batch
from watchbill.model.batch import LONGEST_BATCH_WAIT_SECONDS

PAGE = "howto/batches.md"
_RUN = """
import asyncio

from tasks import app, calls

asyncio.run(app.make_node(once=True).run())
print(calls)
print([job.result(timeout=5) for job in amounts], [job.get().state for job in letters])
print([job.get().state for job in orders])
"""


def test_batch_guide_program_runs_batches(schema_database: str, tmp_path: Path) -> None:
    tasks, program = blocks(PAGE)
    (tmp_path / "tasks.py").write_text(tasks)
    with psycopg.connect(schema_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE booked (n int)")
        lines = run_program(program + _RUN, tmp_path, {"DATABASE_URL": schema_database}).splitlines()
        booked = connection.execute("SELECT n, count(*) OVER (PARTITION BY xmin::text) FROM booked ORDER BY n")
        assert booked.fetchall() == [(1, 2), (2, 2)]
    assert lines == ["[[0, 1, 2]]", "[1.0, 2.5] ['succeeded', 'dead']", "['succeeded', 'succeeded']"]


def test_batch_guide_names_the_defaults() -> None:
    text = (DOCS / PAGE).read_text()
    assert f"(default: {Batch(size=1).wait_seconds * 1000:g} ms; at most a minute)" in text
    assert LONGEST_BATCH_WAIT_SECONDS == 60

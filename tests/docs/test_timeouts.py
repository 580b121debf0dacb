"""docs/howto/timeouts.md: its program stops handlers of each kind; a running handler sees that it was canceled."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg

from tests.docs.programs import DOCS, blocks, run_program
from watchbill.settings import Settings
from watchbill.worker.processes import KILL_AFTER_SECONDS
from watchbill.worker.slots import STOP_AGAIN_SECONDS

PAGE = "howto/timeouts.md"
_CANCEL_RUNNING = """
import threading

running = {task.type: threading.Event() for task in (fetch, import_rows)}
app.on("job_started")(lambda job: running[job.type].set())
with app.node():
    for task in (fetch, import_rows):
        job = task.enqueue(3600)
        assert running[task.type].wait(30)
        print(app.jobs.cancel(job.id, reason="while it runs"))
        try:
            job.result(timeout=30)
        except JobCanceled as failure:
            print(failure.message)
"""


def test_timeout_guide_program_stops_handlers(schema_database: str, tmp_path: Path) -> None:
    tasks, _, program = blocks(PAGE)
    (tmp_path / "tasks.py").write_text(tasks)
    lines = run_program(program + _CANCEL_RUNNING, tmp_path, {"DATABASE_URL": schema_database}).splitlines()
    assert lines[:4] == ["fetch has cleaned up", "timed out after 0.5 s", "timed out after 0.5 s", "True"]
    assert re.fullmatch(r"Job \S+ was canceled: wrong file\.?", lines[4])
    assert lines[5] == "running"
    assert lines[6] == "fetch has cleaned up"
    with psycopg.connect(schema_database) as connection:
        states = connection.execute("SELECT type, state FROM watchbill.job ORDER BY id").fetchall()
    assert states == [
        ("tasks.fetch", "dead"),
        ("tasks.render", "dead"),
        ("tasks.import_rows", "canceled"),
        ("tasks.fetch", "canceled"),
        ("tasks.import_rows", "canceled"),
    ]


def test_timeout_guide_shows_when_jobs_expire(schema_database: str, tmp_path: Path) -> None:
    _, codes, _ = blocks(PAGE)
    short, long = run_program(codes, tmp_path, {"DATABASE_URL": schema_database}).splitlines()
    assert short == "0:10:00"
    assert " days, " in long


def test_timeout_guide_names_the_defaults(tmp_path: Path) -> None:
    text, settings = (DOCS / PAGE).read_text(), Settings.load(project=tmp_path, environ={})
    assert f"killed after {KILL_AFTER_SECONDS:g} seconds" in text
    assert f"`stuck_after` ({settings.stuck_after / 60:g} minutes)" in text
    assert f"`drain_timeout` ({settings.drain_timeout:g} seconds)" in text
    assert STOP_AGAIN_SECONDS == 1  # "again every second"

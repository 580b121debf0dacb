"""docs/howto/troubleshooting.md: its table has every state that jobs get into, and its commands and statements work."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.command import Watchbill
from tests.docs.programs import DOCS, blocks, run_program
from watchbill import App

PAGE = "howto/troubleshooting.md"
_TASKS = """
from watchbill import App, Permanent, Rate, Steps

app = App()


@app.task
def hello(name: str) -> str:
    if name == "fails":
        raise ConnectionError(name)
    if name == "dies":
        raise Permanent(name)
    return f"hello {name}"


@app.task(queue="mail")
def mail() -> None: ...


@app.task
def report() -> None: ...


@app.task(limits=[Rate(1, per="1h")])
def invoice() -> None: ...


@app.task
def remind(steps: Steps) -> None:
    steps.sleep("3d")


def enqueue() -> None:
    later = hello.using(delay="1h").enqueue("later")
    hello.using(depends_on=later).enqueue("after it")
    app.queues.pause(type="tasks.report", reason="the disk is full")
    report.enqueue()
    invoice.enqueue()
    invoice.enqueue()
    remind.enqueue()
    mail.enqueue()
    hello.using(runs_on={"gpu": "a100"}).enqueue("gpu")
    app.enqueue("tasks.helo", {"name": "ada"})
    hello.enqueue("fails")
    hello.enqueue("dies")
    app.jobs.cancel(hello.using(delay="1h").enqueue("not needed").id)
"""
_RUN = """
import threading
import time

from tasks import app, enqueue, hello

failed, died = threading.Event(), threading.Event()
app.on("job_retry")(lambda job, outcome, error: failed.set())
app.on("job_died")(lambda job, outcome, error: died.set())
enqueue()
with app.node(queues=["default"]):
    assert failed.wait(30)
    assert died.wait(30)
    hello.enqueue("ada").result(timeout=30)
    until = time.monotonic() + 30
    while time.monotonic() < until:
        seen = {job.waits or job.state for job in app.jobs.list()}
        if {"unsupported", "paused", "limited", "suspended"} <= seen:
            break
        time.sleep(0.05)
"""


def table() -> set[tuple[str, str]]:
    """The first two columns."""
    section = (DOCS / PAGE).read_text().partition("| state | waits |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (\w+) \| (\w*) ?\|", section, re.MULTILINE)
    return {(state, waits) for state, waits in rows}


@pytest.fixture
def watchbill(schema_database: str, tmp_path: Path) -> Watchbill:
    """A project whose jobs do not run for every reason of the page; its node has stopped."""
    (tmp_path / "tasks.py").write_text(_TASKS)
    run_program(_RUN, tmp_path, {"DATABASE_URL": schema_database})
    return Watchbill(tmp_path, {"DATABASE_URL": schema_database, "COLUMNS": "200"})


def test_troubleshooting_guide_explains_every_state(watchbill: Watchbill) -> None:
    app = App(watchbill.environ["DATABASE_URL"])
    seen = {(job.state, job.waits or "") for job in app.jobs.list()}
    app.close()
    assert seen - {("succeeded", "")} == table() - {("running", "")}


def test_troubleshooting_guide_retries_and_resumes(watchbill: Watchbill) -> None:
    app = App(watchbill.environ["DATABASE_URL"])
    jobs = {job.waits or job.state: job.id for job in app.jobs.list()}
    for waits in ("scheduled", "retrying"):
        assert watchbill("jobs", "retry", str(jobs[waits])).returncode == 0
        after = app.jobs.get(jobs[waits])
        assert after.waits == "ready"
    assert watchbill("queues", "resume", "--type", "tasks.report").returncode == 0
    after = app.jobs.get(jobs["paused"])
    app.close()
    assert after.waits == "ready"
    assert "the disk" not in watchbill("queues").stdout


def test_troubleshooting_guide_doctor_finds_unserved_jobs(watchbill: Watchbill) -> None:
    done = watchbill("doctor")
    assert done.returncode == 1
    assert "queue mail is served by no live node (1 job)" in done.stdout
    assert "type tasks.helo is handled by no live node (1 job)" in done.stdout


def test_troubleshooting_guide_statements_run(watchbill: Watchbill) -> None:
    lost, old, sizes = blocks(PAGE, "sql")
    with psycopg.connect(watchbill.environ["DATABASE_URL"], autocommit=True) as connection:
        assert connection.execute(lost.encode()).fetchall() == []
        connection.execute(old.encode())
        tables = {name for name, _ in connection.execute(sizes.encode()).fetchall()}
    assert any(name.startswith("watchbill.") for name in tables)

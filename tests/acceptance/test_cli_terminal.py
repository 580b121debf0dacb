"""What a person sees in a terminal: whole ids at every width, and the lines of `watchbill up`."""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.command import Watchbill
from tests.acceptance.terminal import terminal
from tests.waiting import until
from watchbill.postgres.embedded import find_running_url

TASKS = """
from watchbill import App, Permanent, Retry

app = App()

@app.task
def succeed() -> int:
    return 42

@app.task(retry=Retry(max_attempts=1))
def crash() -> None:
    raise ValueError("the milk is sour")

@app.task
def refuse() -> None:
    raise Permanent("this card was reported stolen, and that is a long message which needs another line")
"""


@pytest.mark.parametrize("width", [80, 100, 120])
def test_lists_fit_with_short_ids_and_every_part_of_a_name(tmp_path: Path, schema_database: str, width: int) -> None:
    watchbill = Watchbill(tmp_path, {"WATCHBILL_DATABASE_URL": schema_database})
    with psycopg.connect(schema_database, autocommit=True) as connection:
        statement = (
            "SELECT id::text FROM watchbill.enqueue("
            "'shop.orders.send_confirmation', queue => 'confirmations-of-orders', delay => '1 day')"
        )
        jobs = {connection.execute(statement).fetchall()[0][0] for _ in range(3)}
    with terminal(watchbill.command("jobs"), tmp_path, watchbill.environment(), width) as shown:
        assert shown.wait() == 0
    words = shown.text.split()
    ids = [word for word in words if re.fullmatch(r"[0-9a-f]{8}-[0-9a-f-]+", word)]
    assert [[job for job in jobs if job.startswith(each)] for each in ids] == [[job] for job in sorted(jobs)[::-1]]
    assert sum("send_" in word for word in words) == 3
    assert max(map(len, shown.lines)) <= width


def test_errors_are_broken_between_words(tmp_path: Path) -> None:
    watchbill = Watchbill(tmp_path)
    command = watchbill.command("db", "status", "--database-url", "postgresql://nobody@127.0.0.1:1/no?sslmode=prefers")
    with terminal(command, tmp_path, watchbill.environment(), 60) as shown:
        assert shown.wait() != 0
    assert len(shown.lines) > 1
    assert max(map(len, shown.lines)) <= 60
    assert shown.text.startswith("Error: ")


def test_doctor_fits_into_80_columns(tmp_path: Path, schema_database: str) -> None:
    watchbill = Watchbill(tmp_path, {"WATCHBILL_DATABASE_URL": schema_database})
    with psycopg.connect(schema_database, autocommit=True) as connection:
        connection.execute("SELECT watchbill.enqueue('shop.orders.send', queue => 'confirmations-of-orders')")
        connection.execute("SELECT watchbill.register('n', queues => '{default}')")
    with terminal(watchbill.command("doctor"), tmp_path, watchbill.environment(), 80) as shown:
        assert shown.wait() == 1
    long = [line for line in shown.lines if len(line) > 80]
    assert long == [line for line in long if " " not in line.strip()]  # an address that cannot be broken
    joined = " ".join(shown.text.split())
    assert "queue confirmations-of-orders is served by no live node (1 job)." in joined


@pytest.fixture
def project() -> Iterator[Watchbill]:
    directory = Path(tempfile.mkdtemp(prefix="watchbill-terminal-"))
    directory.chmod(0o755)
    (directory / "pyproject.toml").touch()
    (directory / "tasks.py").write_text(TASKS)
    yield Watchbill(directory)
    until(lambda: find_running_url(directory) is None)
    shutil.rmtree(directory)


def test_up_prints_each_job_once_with_its_whole_id(project: Watchbill) -> None:
    with terminal(project.command("up"), project.directory, project.environment(), 80) as shown:
        shown.wait_for("Ctrl-C drains the worker")
        assert re.search(r"^    \S*watchbill jobs$", shown.text, re.MULTILINE), "what to type next"
        jobs = {}
        for name in ("succeed", "crash", "refuse"):
            jobs[name] = project("jobs", "enqueue", f"tasks.{name}").stdout.strip()
        for job in jobs.values():
            shown.wait_for(job)
        shown.wait_for("jobs/s: ")
        waited = project("jobs", "enqueue", "tasks.succeed", "--wait")
        assert (waited.returncode, waited.stdout.split()[1:]) == (0, ["succeeded", "42"])
        failed = project("jobs", "enqueue", "tasks.crash", "--wait")
        assert (failed.returncode, failed.stdout.splitlines()[1]) == (1, "dead  ValueError: the milk is sour")
        shown.press("\x03")
        assert shown.wait() == 0
    [succeeded] = [line for line in shown.lines if jobs["succeed"] in line]
    assert re.match(r"\d\d:\d\d:\d\d succeeded .* ms  tasks\.succeed  ", succeeded)
    crashed = shown.lines.index(next(line for line in shown.lines if jobs["crash"] in line))
    assert shown.lines[crashed + 1].strip() == "attempt 1 of 1: ValueError: the milk is sour"
    assert shown.lines[crashed + 2].strip() == "Traceback (most recent call last):"
    assert shown.text.count(jobs["crash"]) == shown.text.count(jobs["refuse"]) == 1
    assert max(len(line) for line in shown.lines if re.match(r"\d\d:\d\d:\d\d (succ|dead|──)|         ", line)) <= 80


def test_up_names_the_task_of_a_job_that_was_canceled_before_it_ran(project: Watchbill) -> None:
    (project.directory / "tasks.py").write_text(
        TASKS
        + """
@app.task
def never() -> None: ...

@app.on("node_started")
def start(name: str, epoch: int) -> None:
    import threading
    def cancel() -> None:
        job = never.using(delay=3600).enqueue()
        app.jobs.cancel(job.id)
    threading.Thread(target=cancel).start()
"""
    )
    with terminal(project.command("up"), project.directory, project.environment(), 120) as shown:
        shown.wait_for("canceled")
        until(lambda: re.search(r"^\d\d:\d\d:\d\d canceled +tasks\.never ", shown.text, re.MULTILINE) is not None)


def test_up_starts_its_server_again_when_it_dies(project: Watchbill) -> None:
    with terminal(project.command("up"), project.directory, project.environment(), 120) as shown:
        shown.wait_for("Ctrl-C drains the worker")
        url = find_running_url(project.directory)
        assert url is not None
        assert project("jobs", "enqueue", "tasks.succeed", "--wait").returncode == 0
        server = int((project.directory / ".watchbill/data/postmaster.pid").read_text().split()[0])
        os.kill(server, signal.SIGKILL)
        shown.wait_for("PostgreSQL has ended; starting it again. Its log is ")
        shown.wait_for("PostgreSQL runs again.")
        shown.wait_for("The database answers again")
        assert project("jobs", "enqueue", "tasks.succeed", "--wait").returncode == 0
        assert shown.text.count("The database does not answer") == 1
    done = project("jobs", "--database-url", url)
    assert done.returncode == 3
    assert "This is the embedded server of a project, and it does not run." in done.stderr
    assert "Start PostgreSQL" not in done.stderr

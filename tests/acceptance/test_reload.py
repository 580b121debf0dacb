"""`watchbill worker --reload`: what runs may finish under the old code, what comes next runs under the new."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.command import Watchbill
from tests.waiting import until
from watchbill import App, Job

TASKS = """
import pathlib, time
from watchbill import App

app = App()
WORD = "first"


@app.task
def patient(n: int) -> str:
    pathlib.Path(f"started-{n}-{WORD}").touch()
    while not pathlib.Path(f"go-{n}").exists():
        time.sleep(0.01)
    return WORD
"""
PATIENCE = 60


class Worker:
    def __init__(self, directory: Path, url: str) -> None:
        self._directory, self._app = directory, App(url)
        self.output = directory / "output"
        watchbill = Watchbill(directory, {"WATCHBILL_DATABASE_URL": url})
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                watchbill.command("worker", "--reload", "--lines"),
                cwd=directory,
                env=watchbill.environment(),
                stdout=output,
                stderr=output,
            )

    def says(self, words: str, times: int = 1) -> None:
        until(lambda: self.output.read_text().count(words) >= times or self.process.poll() is not None, PATIENCE)
        assert self.output.read_text().count(words) >= times, self.output.read_text()

    def enqueue(self, n: int) -> Job[str]:
        return self._app.enqueue("tasks.patient", {"n": n})

    def write(self, old: str, new: str) -> None:
        source = self._directory / "tasks.py"
        source.write_text(source.read_text().replace(old, new))

    def close(self) -> None:
        self._app.close()
        self.process.terminate()
        assert self.process.wait(PATIENCE) == 0, self.output.read_text()


@pytest.fixture
def worker(schema_database: str, tmp_path: Path) -> Iterator[Worker]:
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "tasks.py").write_text(TASKS)
    running = Worker(tmp_path, schema_database)
    yield running
    running.close()


def test_a_running_job_finishes_before_the_new_code_starts(worker: Worker, tmp_path: Path) -> None:
    worker.says("handlers at once")
    first = worker.enqueue(1)
    until((tmp_path / "started-1-first").exists, PATIENCE)
    worker.write('"first"', '"second"')
    worker.says("The code has changed: the worker finishes its running jobs")
    (tmp_path / "go-2").touch()
    second = worker.enqueue(2)
    (tmp_path / "go-1").touch()
    assert (first.result(PATIENCE), second.result(PATIENCE)) == ("first", "second")
    assert [first.get().attempt, second.get().attempt] == [1, 1]
    assert sorted(path.name for path in tmp_path.glob("started-*")) == ["started-1-first", "started-2-second"]


def test_reload_reports_broken_code_and_recovers_when_it_is_fixed(worker: Worker, tmp_path: Path) -> None:
    worker.says("handlers at once")
    worker.write("app = App()", "app = App(")
    worker.says("importing it failed")
    worker.says("The worker restarts when the code changes.")
    worker.write("app = App(", "app = App()")
    worker.says("handlers at once", times=2)
    (tmp_path / "go-3").touch()
    assert worker.enqueue(3).result(PATIENCE) == "first"
    assert worker.output.read_text().count("importing it failed") == 1

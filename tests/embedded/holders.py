"""Starts processes that hold a server (holder.py), and waits for what the kernel says of them."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg

import watchbill
from watchbill.postgres.embedded import supervisor

TESTS = Path(__file__).parents[2]


class Holder:
    """A process that asks for the server at once; `report` waits until it has it."""

    def __init__(
        self,
        project: Path,
        *,
        binaries: str = "auto",
        habit: str = "",
        python: str = sys.executable,
        prefix: tuple[str, ...] = (),
        user: str | None = None,
    ) -> None:
        self._report: dict[str, Any] | None = None
        self.process = subprocess.Popen(
            [*prefix, python, "-m", "tests.embedded.holder", str(project), binaries, habit],
            cwd=TESTS,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": python_path()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            user=user,
            group=None if user is None else "nogroup",
            extra_groups=None if user is None else [],
        )

    @property
    def report(self) -> dict[str, Any]:
        if self._report is None:
            assert self.process.stdout is not None
            line = self.process.stdout.readline()
            if not line:
                raise AssertionError(f"the holder failed:\n{self.process.communicate()[1]}")
            self._report = json.loads(line)
        return self._report

    @property
    def url(self) -> str:
        return str(self.report["url"])

    @property
    def started(self) -> bool:
        return bool(self.report["started"])

    def let_go(self) -> None:
        _, complaint = self.process.communicate()
        assert self.process.returncode == 0, complaint

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def interrupt(self) -> None:
        """As Ctrl-C in its terminal does: the whole process group gets it."""
        os.killpg(self.process.pid, signal.SIGINT)
        self.process.communicate()


def python_path() -> str:
    """For a Python of the same version that is not the virtual environment's."""
    return os.pathsep.join(str(Path(str(package.__file__)).parents[1]) for package in (watchbill, psycopg))


def wait_until_free(lock: Path) -> None:
    """A lock becomes free when the last process that has it ends."""
    descriptor = supervisor.open_lock(lock)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.close(descriptor)


def server_pid(project: Path) -> int:
    pid = supervisor.find_running_pid(project / ".watchbill" / "data")
    assert pid is not None
    return pid


def is_quiet(home: Path) -> bool:
    """Whether no process of a server is left. Under the lock: the watcher asks the same when its wait ends, and holds
    for that moment what it asks about."""
    with supervisor.lock_for_change(home):
        return supervisor.has_ended(home)

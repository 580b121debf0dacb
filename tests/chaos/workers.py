"""Worker processes as a supervisor would start them, each with a log of its own, and what can be done to them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.flow_tasks import URL
from tests.chaos.journal import VARIABLE

ROOT = Path(__file__).parents[2]
SHELL_WORKER = ROOT / "examples" / "psql_worker" / "worker.sh"
EXTERNAL = "CHAOS_EXTERNAL_WORKER"  # a command; it is given what SHELL_WORKER is given
SHELL_HANDLER = Path(__file__).parent / "shell_handler.sh"


_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _die_with_the_tests() -> None:
    """Even when these are killed: a worker that nobody stops would look for its database for ever."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def environment(**more: str) -> dict[str, str]:
    """Nothing of the caller's own Watchbill or PostgreSQL settings."""
    foreign = ("WATCHBILL_", "PG", "DATABASE_URL", "CHAOS_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**inherited, "PYTHONUNBUFFERED": "1", **more}


@dataclass
class Worker:
    """One process. `stopped` while it is frozen."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    frozen: bool = False
    nodes: int = 1  # that it registers: a supervisor has several
    started: float = field(default_factory=time.monotonic)

    def signal(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)

    def freeze(self) -> None:
        self.frozen = True
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.frozen = False
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def children(self) -> list[int]:
        """The processes that run its CPU-bound handlers."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == self.process.pid and b"watchbill.worker.child" in (path / "cmdline").read_bytes():
                    found.append(int(path.name))
        return found

    def text(self) -> str:
        return self.log.read_text(errors="replace")


@dataclass
class Workers:
    """Starts them and, at the end, leaves none behind."""

    directory: Path
    journal: Path
    settings: dict[str, str] = field(default_factory=dict)
    application: str = "tests.chaos.application:app"
    all: list[Worker] = field(default_factory=list)

    def start(self, url: str, *words: str, handlers_url: str | None = None, **settings: str) -> Worker:
        """`watchbill worker` with `words` as further arguments and settings by name."""
        variables = {f"WATCHBILL_{name.upper()}": value for name, value in {**self.settings, **settings}.items()}
        known = {VARIABLE: str(self.journal), URL: handlers_url or url, "WATCHBILL_DATABASE_URL": url}
        command = [sys.executable, "-m", "watchbill.cli", "worker", self.application, *words]
        worker = self._start("worker", command, environment(**known, **variables))
        worker.nodes = int(words[words.index("--processes") + 1]) if "--processes" in words else 1
        return worker

    def start_external(self, url: str, queue: str, lease: int, path: str) -> Worker | None:
        """A worker in another language, if there is one: the example in shell, or what the environment names."""
        command = os.environ.get(EXTERNAL, "").split() or ([str(SHELL_WORKER)] if SHELL_WORKER.exists() else [])
        if not command:
            return None
        known = {"DATABASE_URL": url, "QUEUES": queue, "TYPES": "external", "LEASE": str(lease)}
        known[VARIABLE] = str(self.journal)
        path = f"{path}:{os.environ['PATH']}"
        return self._start("shell", [*command, str(SHELL_HANDLER)], environment(**known, PATH=path))

    def _start(self, kind: str, command: list[str], variables: dict[str, str]) -> Worker:
        name = f"{kind}-{len(self.all)}"
        log = self.directory / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=variables,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=_die_with_the_tests,
            )
        self.all.append(Worker(name, process, log))
        return self.all[-1]

    def stop(self, patience: float = 60) -> dict[str, int]:
        """Drains all that live; their exit codes."""
        living = [worker for worker in self.all if worker.alive]
        for worker in living:
            worker.thaw()
            worker.signal(signal.SIGTERM)
        deadline = time.monotonic() + patience
        for worker in living:
            worker.process.wait(max(0.1, deadline - time.monotonic()))
        return {worker.name: worker.process.returncode for worker in living}

    def kill_all(self) -> None:
        """With whatever they have started: each leads a process group of its own."""
        for worker in self.all:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.process.pid, signal.SIGKILL)
            worker.process.wait()

    def complaints(self) -> list[str]:
        """What no fault explains: tracebacks that are not those of a job, tasks whose error nobody looked at."""
        words = r"CRITICAL|never retrieved|never awaited|was destroyed|RuntimeWarning"
        bad = re.compile(rf"^(?!.* watchbill\.jobs: ).*\n(?=Traceback)|{words}", re.MULTILINE)
        return [f"{w.name}: {found}" for w in self.all if (found := _around(bad, w.text()))]


def _around(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return text[max(0, found.start() - 300) : found.end() + 3000] if found else ""

"""One peer in one run: its commands, its workers, and how far they are."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks import database
from benchmarks.peers import Peer
from benchmarks.places import DSN, ENV, REDIS_URL, ROOT

PATIENCE = 5  # seconds for a worker to stop by itself


class Failed(Exception):
    """A peer did not do what it was asked to; the message ends with what it said."""


class Contestant:
    """Use it as a context: what it started ends with it."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.directory = Path(tempfile.mkdtemp(prefix="bench-"))
        self.latencies = self.directory / "latencies"
        self._counters = self.directory / "counters"
        self._counters.mkdir()
        self._words = self.directory / "stderr"
        self._workers: list[subprocess.Popen[bytes]] = []
        self._logged: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def on_postgres(self) -> bool:
        return self.peer.left is not None

    @property
    def sessions(self) -> set[int]:
        return {worker.pid for worker in self._workers}

    def set_up(self) -> None:
        database.make_anew()
        self.call("setup")

    def call(self, command: str, *arguments: object) -> dict[str, float]:
        with self.begin(command, *arguments) as process:
            return self.result(process, command)

    def begin(self, command: str, *arguments: object) -> subprocess.Popen[str]:
        """For commands side by side; `result` waits for each."""
        words = [*self.peer.command, command, *map(str, arguments)]
        with self._words.open("ab") as said:
            return subprocess.Popen(
                words, env=self._environment(), cwd=ROOT, stdout=subprocess.PIPE, stderr=said, text=True
            )

    def result(self, process: subprocess.Popen[str], command: str) -> dict[str, float]:
        printed, _ = process.communicate()
        if process.returncode:
            raise self._failed(f"`{command}` ended with {process.returncode}")
        lines = [line for line in printed.splitlines() if line.startswith("{")]
        return json.loads(lines[-1]) if lines else {}

    def start(self, count: int = 1) -> None:
        """Each in a session of its own, so that what it starts can be counted and stopped."""
        environment = self._environment() | {"BENCH_COUNTERS": str(self._counters)}
        for _ in range(count):
            with self._words.open("ab") as said:
                self._workers.append(
                    subprocess.Popen(
                        [*self.peer.command, "worker"],
                        env=environment,
                        cwd=ROOT,
                        stdout=subprocess.DEVNULL,
                        stderr=said,
                        start_new_session=True,
                    )
                )

    def log_latencies(self) -> None:
        """From the next start on."""
        self._logged = {"BENCH_LATENCIES": str(self.latencies)}

    def check_alive(self) -> None:
        for worker in self._workers:
            if worker.poll() is not None:
                raise self._failed(f"a worker ended with {worker.returncode}")

    def stop(self) -> None:
        for worker in self._workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGTERM)
        for worker in self._workers:
            try:
                worker.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()
        self._workers = []

    def counts(self) -> list[int]:
        """Jobs that each process has run."""
        cells = [file.read_bytes() for file in self._counters.iterdir()]
        return [int.from_bytes(cell, "little") for cell in cells if len(cell) == 8]

    def _environment(self) -> dict[str, str]:
        """Without settings of Watchbill's: its defaults are what is measured."""
        own = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("WATCHBILL_", "PG", "DATABASE_URL"))
        }
        return own | {
            "BENCH_DSN": DSN,
            "BENCH_REDIS_URL": REDIS_URL,
            "BENCH_ENV": str(ENV),
            "BENCH_OPTIONS": json.dumps(dict(self.peer.options)),
            **self._logged,
        }

    def _failed(self, what: str) -> Failed:
        said = self._words.read_text(errors="replace")[-2000:] if self._words.exists() else ""
        return Failed(f"{self.peer.name}: {what}\n{said}")

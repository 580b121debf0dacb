"""Real processes that own keys: killed, frozen past their lease, and joined by others.

They write a journal under the fences of their items. The checker reads that journal, not what the processes say.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.cluster.member_program import KEYS
from tests.cluster.simulation import Write, check_journal
from tests.waiting import until

ROOT = Path(__file__).parents[2]


class Members:
    def __init__(self, url: str, logs: Path) -> None:
        self.url = url
        self.logs = logs
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        command = [sys.executable, "-m", "tests.cluster.member_program", self.url, name]
        with self._log(name).open("wb") as log:
            self.processes[name] = subprocess.Popen(command, cwd=ROOT, stderr=log)

    def _log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def send(self, name: str, number: signal.Signals) -> None:
        os.kill(self.processes[name].pid, number)

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()

    def journal(self, after: int = 0) -> list[tuple[int, str, int, str]]:
        with psycopg.connect(self.url) as connection:
            return connection.execute(
                "SELECT id, key, fence, node FROM journal WHERE id > %s ORDER BY id", (after,)
            ).fetchall()

    def wait_until_written_by(self, *names: str) -> None:
        """Until these nodes together have written every key, and each of them some, from now on."""
        last = max((row[0] for row in self.journal()), default=0)

        def is_complete() -> bool:
            for name in names:
                assert self.processes[name].poll() is None, f"{name} ended:\n{self._log(name).read_text()}"
            rows = [row for row in self.journal(last) if row[3] in names]
            return {row[1] for row in rows} == set(KEYS) and {row[3] for row in rows} == set(names)

        until(is_complete, patience=100)

    def check(self) -> None:
        numbers = {name: number for number, name in enumerate(self.processes)}
        assert check_journal(Write(key, fence, numbers[node]) for _, key, fence, node in self.journal()) == []


@pytest.fixture
def members(schema_database: str, tmp_path: Path) -> Iterator[Members]:
    with psycopg.connect(schema_database) as connection:
        connection.execute("CREATE TABLE journal (id bigserial PRIMARY KEY, key text, fence bigint, node text)")
    made = Members(schema_database, tmp_path)
    yield made
    made.stop()


@pytest.mark.timeout(400)
def test_keys_survive_a_kill_and_a_freeze_and_are_never_written_by_two(members: Members) -> None:
    for name in ("a", "b", "c"):
        members.start(name)
    members.wait_until_written_by("a", "b", "c")
    members.send("a", signal.SIGKILL)  # the first one leads
    members.wait_until_written_by("b", "c")
    members.send("b", signal.SIGSTOP)
    members.wait_until_written_by("c")  # past the lease of the frozen one
    members.send("b", signal.SIGCONT)
    members.start("d")
    members.wait_until_written_by("b", "c", "d")
    members.check()


def test_the_checker_finds_a_write_under_an_old_fence(members: Members) -> None:
    members.processes = {"a": None, "b": None}  # type: ignore[dict-item]
    with psycopg.connect(members.url) as connection:
        for node, fence in (("a", 1), ("b", 2), ("a", 1)):
            connection.execute("INSERT INTO journal (key, fence, node) VALUES ('k', %s, %s)", (fence, node))
    with pytest.raises(AssertionError):
        members.check()
    members.processes.clear()

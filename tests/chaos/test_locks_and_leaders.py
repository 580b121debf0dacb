"""Holders of a lock and leaders of a group as real processes: killed, frozen and thawed.

They write their fence into a table, in the transaction that checks it. The table alone is judged: in the order in which
rows were written, fences never go back, and each fence is of one process.
"""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.chaos.workers import _die_with_the_tests, environment
from tests.waiting import until
from watchbill import App

HERE = Path(__file__).parent
STORM_SECONDS = 6.0


class Program:
    """A process whose output goes to a file."""

    def __init__(self, path: Path, *command: str, **settings: str) -> None:
        self.path = path
        with path.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                env=environment(**settings),
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=HERE.parents[1],
                preexec_fn=_die_with_the_tests,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def text(self) -> str:
        return self.path.read_text()

    def has_held(self) -> bool:
        return "holds" in self.text()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Stage:
    """A database with a table of history, and the programs that write there."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url, self._directory, self.programs = url, directory, list[Program]()
        with psycopg.connect(url) as connection:
            # The number is drawn after the check, while no other holder can write: it is the order of the writes.
            connection.execute("CREATE TABLE history (place bigserial PRIMARY KEY, number bigint, pid int)")

    def holder(self, *words: str) -> Program:
        return self._start(str(HERE / "lock_holder.py"), self.url, *words)

    def node(self, name: str) -> Program:
        words = ("worker", "tests.chaos.leader_app:app", "--name", name)
        settings = {"WATCHBILL_LEASE": "1", "WATCHBILL_DATABASE_URL": self.url, "WATCHBILL_DRAIN_TIMEOUT": "1s"}
        return self._start("-m", "watchbill.cli", *words, **settings)

    def _start(self, *command: str, **settings: str) -> Program:
        program = Program(self._directory / f"{len(self.programs)}.log", *command, **settings)
        self.programs.append(program)
        return program

    def history(self) -> list[tuple[int, int]]:
        """Fence and process of each write, in order."""
        with psycopg.connect(self.url) as connection:
            return connection.execute("SELECT number, pid FROM history ORDER BY place").fetchall()

    def writes_of(self, program: Program) -> int:
        return sum(pid == program.pid for _, pid in self.history())

    def take_out(self, check: str) -> None:
        with psycopg.connect(self.url) as connection:
            ((text,),) = connection.execute(
                "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE oid = 'watchbill.lock_check'::regproc"
            ).fetchall()
            assert check in text
            connection.execute(text.replace(check, "").encode())

    def close(self) -> None:
        for program in self.programs:
            program.kill()


def find_faults(history: list[tuple[int, int]]) -> list[str]:
    faults = [
        f"fence {later} was written after {earlier}"
        for (earlier, _), (later, _) in itertools.pairwise(history)
        if later < earlier
    ]
    owners: dict[int, set[int]] = {}
    for fence, pid in history:
        owners.setdefault(fence, set()).add(pid)
    return faults + [f"fence {fence} is of the processes {pids}" for fence, pids in owners.items() if len(pids) > 1]


@pytest.fixture
def stage(schema_database: str, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(schema_database, tmp_path)
    yield stage
    stage.close()


def test_the_checker_finds_planted_faults() -> None:
    assert find_faults([(1, 7), (1, 7), (3, 8), (4, 7)]) == []
    assert find_faults([(1, 7), (3, 8), (1, 7)]) == ["fence 1 was written after 3"]
    assert find_faults([(1, 7), (1, 8)]) == ["fence 1 is of the processes {8, 7}"]


# -- locks


def freeze_the_holder(stage: Stage) -> Program:
    """One holder is frozen while it holds the lock; another one gets the lock and writes; the first is thawed."""
    first = stage.holder("stubborn")
    until(lambda: stage.writes_of(first) > 0)
    while True:
        first.freeze()
        if lock_is_held(stage.url):
            break
        first.thaw()
        time.sleep(0.001)
    second = stage.holder()
    until(lambda: stage.writes_of(second) > 0)
    return first


def lock_is_held(url: str) -> bool:
    """Also if its row is locked by a check of the frozen one: then its transaction has to end first."""
    with psycopg.connect(url) as connection:
        ((holder, in_transaction),) = connection.execute("""
            SELECT (SELECT l.holder FROM watchbill.locks l),
              EXISTS (SELECT FROM pg_stat_activity a WHERE a.state LIKE 'idle in transaction%')""").fetchall()
    return holder is not None and not in_transaction


def test_a_frozen_holder_is_refused_after_another_one_got_the_lock(stage: Stage) -> None:
    first = freeze_the_holder(stage)
    first.thaw()
    until(lambda: "refused" in first.text())
    assert find_faults(stage.history()) == []


def test_without_the_fence_check_a_frozen_holder_would_do_harm(stage: Stage) -> None:
    stage.take_out("AND l.fence = fence")
    first = freeze_the_holder(stage)
    before = stage.writes_of(first)
    first.thaw()
    until(lambda: stage.writes_of(first) > before)
    until(lambda: find_faults(stage.history()))


def test_a_killed_holder_loses_the_lock(stage: Stage) -> None:
    first = stage.holder()
    until(lambda: stage.writes_of(first) > 0)
    first.kill()
    second = stage.holder()
    until(lambda: stage.writes_of(second) > 0)
    assert find_faults(stage.history()) == []


@pytest.mark.long
def test_a_storm_of_kills_and_freezes_leaves_a_sound_history(stage: Stage) -> None:
    seed = random.randrange(10**6)
    dice = random.Random(seed)
    for program in [stage.holder("stubborn") for _ in range(3)]:
        until(program.has_held)
    frozen: dict[Program, float] = {}
    end = time.monotonic() + STORM_SECONDS
    while time.monotonic() < end:
        time.sleep(dice.uniform(0.02, 0.2))
        for program, until_when in list(frozen.items()):
            if time.monotonic() > until_when:
                program.thaw()
                del frozen[program]
        living = [each for each in stage.programs if each.process.poll() is None and each not in frozen]
        if not living:
            continue
        victim = dice.choice(living)
        if dice.random() < 0.2:
            victim.kill()
            stage.holder("stubborn")
        else:
            victim.freeze()
            frozen[victim] = time.monotonic() + dice.choice([0.05, 0.5, 1.5])
    for program in frozen:
        program.thaw()
    last = stage.history()[-1][0]
    until(lambda: stage.history()[-1][0] > last)  # the lock goes on to new holders
    assert find_faults(stage.history()) == [], f"seed {seed}"


# -- leaders


def other_leader(stage: Stage, than: Program) -> None:
    """Waits until another process than this one writes as the leader."""
    before = len(stage.history())
    until(lambda: [pid for _, pid in stage.history()[before:] if pid != than.pid])


@pytest.mark.parametrize("end", ["kill", "freeze", "stop"])
def test_another_node_leads_after_the_end_of_the_leader(stage: Stage, end: str) -> None:
    first = stage.node("first")
    until(lambda: stage.writes_of(first) > 0)
    second = stage.node("second")
    app = App(stage.url)
    until(lambda: len(app.cluster.nodes()) == 2)
    match end:
        case "kill":
            first.kill()
        case "freeze":
            first.freeze()
        case "stop":
            first.process.send_signal(signal.SIGTERM)
    other_leader(stage, first)
    if end == "freeze":
        first.thaw()
        until(lambda: "declared lost" in first.text() or "no longer leads" in first.text())
        until(lambda: {node.name for node in app.cluster.nodes()} == {"first", "second"})
        before = stage.writes_of(second)
        until(lambda: stage.writes_of(second) > before)
    if end == "stop":
        assert first.process.wait(60) == 0
    app.close()
    assert find_faults(stage.history()) == []

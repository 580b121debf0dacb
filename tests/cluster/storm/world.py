"""A storm: a server, processes, faults drawn from a seed, and times of calm in which everything must be in order again.

A round is a burst of faults and a calm, or a single fault and a calm. In a calm nothing is broken; processes that are
frozen may stay so, and thaw in the middle of the next burst, when all that they owned belongs to others.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self

import psycopg

from tests.chaos import journal
from tests.chaos.proxy import Proxy
from tests.chaos.server import ChaosServer
from tests.chaos.workers import ROOT, _die_with_the_tests, environment
from tests.cluster.storm.checker import check, check_end, recovery_times
from tests.cluster.storm.programs import HANDOVER_SECONDS, NO_DATABASE, declare_work
from tests.cluster.storm.recorded import ITEM_KEYS, ITEMS, JOB_KEYS, JOBS, TABLES, TOTAL, Calm, History, Life
from tests.servers import _place
from tests.waiting import until
from watchbill import App, WatchbillError
from watchbill.postgres.embedded import Binaries

MARGIN_SECONDS = 5.0
PINNED_KEYS = ITEM_KEYS[:4]
STRANDED = """
SELECT count(*) FROM watchbill.token_groups g
WHERE (
  SELECT count(*) FROM watchbill.tokens x JOIN watchbill.nodes n USING (epoch)
  WHERE x.token_group = g.name AND x.token < g.total AND n.pid = ANY (%s) AND n.state IN ('active', 'draining')
) < g.total"""
UNQUIET = """
SELECT coalesce(string_agg(what || ': ' || count, ', '), '')
FROM (VALUES
  ('tokens that move', (SELECT count(*) FROM watchbill.tokens WHERE next IS NOT NULL)),
  ('pins', (SELECT count(*) FROM watchbill.pins)),
  ('jobs', (SELECT count(*) FROM watchbill.jobs)),
  ('claims', (SELECT count(*) FROM watchbill.claims)),
  ('nodes of no living process', (
    SELECT count(*) FROM watchbill.nodes WHERE state IN ('active', 'draining') AND pid <> ALL (%(pids)s))),
  ('processes that have not joined', cardinality(%(pids)s::int[]) - (
    SELECT count(DISTINCT n.pid) FROM watchbill.members m JOIN watchbill.nodes n USING (epoch)
    WHERE n.pid = ANY (%(pids)s) AND n.state = 'active')),
  ('groups without a plan', (
    SELECT count(*) FROM watchbill.token_groups g
    WHERE g.planned_members IS DISTINCT FROM watchbill._eligible_members(g.name)))) x(what, count)
WHERE count > 0"""
LEADERS = """
SELECT n.pid FROM watchbill.locks l JOIN watchbill.nodes n USING (epoch)
WHERE l.name = ANY (%s) AND l.holder IS NOT NULL AND n.state = 'active'"""


@dataclass(frozen=True)
class Plan:
    seed: int
    rounds: int
    members: int = 3
    workers: int = 0
    most: int = 8  # processes of each kind
    lease: float = 2.0
    burst: tuple[int, int] = (3, 10)  # faults
    gap: tuple[float, float] = (0.05, 0.8)  # seconds between two
    has_bounds: bool = True  # judge how long a recovery takes
    patience: float = 60.0  # for a recovery, where that is not judged

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(group for group, count in ((ITEMS, self.members), (JOBS, self.workers)) if count)


@dataclass
class Process:
    """One process of a storm."""

    name: str
    kind: str
    popen: subprocess.Popen[bytes]
    log: Path
    life: Life
    is_frozen: bool = False
    is_leaving: bool = False

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def is_alive(self) -> bool:
        return self.popen.poll() is None

    def send(self, number: signal.Signals) -> None:
        if self.is_alive:
            self.popen.send_signal(number)


@dataclass
class Storm:
    """`with Storm(binaries, plan) as storm: storm.run()`; then `storm.violations` and `storm.report()`."""

    binaries: Binaries
    plan: Plan
    violations: list[str] = field(default_factory=list)
    deeds: list[str] = field(default_factory=list)
    before: Callable[[str], object] | None = None  # prepares the database, for planted faults

    def __enter__(self) -> Self:
        self.random = Random(self.plan.seed)
        self.directory = Path(tempfile.mkdtemp(prefix="storm-", dir=_place()))
        (self.directory / "journal").mkdir()
        self.server = ChaosServer(self.binaries).__enter__()
        self.server.sql(TABLES)
        keys = [*ITEM_KEYS, *JOB_KEYS]
        self.server.sql("INSERT INTO ledger SELECT unnest(%s::text[]), 0", keys)
        if self.before is not None:
            self.before(self.server.url)
        self.proxies = [Proxy(self.server.socket).__enter__() for _ in range(2)]
        self.history = History(groups=self.plan.groups)
        self.processes: list[Process] = []
        self._producer = _Producer(self.server.url) if self.plan.workers else None
        self._began = time.time()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._producer is not None:
            self._producer.stop()
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.popen.wait()
        for proxy in self.proxies:
            proxy.__exit__()
        if error is None and not self.violations:
            shutil.rmtree(self.directory)
        else:
            shutil.copy(self.server.log, self.directory)
        self.server.__exit__()

    # -- the run

    def run(self) -> None:
        for kind, count in (("member", self.plan.members), ("worker", self.plan.workers)):
            for _ in range(count):
                self._start(kind)
        self._wait_until_recovered(self.plan.patience)
        if self._producer is not None:
            self._producer.start()
        for number in range(self.plan.rounds):
            single = number % 3 == 2
            bound = (1 if single else 2) * self.plan.lease + MARGIN_SECONDS
            self._strike_once() if single else self._burst()
            self._calm(bound)
        self._come_to_an_end()
        self._judge()

    def _burst(self) -> None:
        for _ in range(self.random.randint(*self.plan.burst)):
            self._tend()
            names = list(FAULTS)
            (name,) = self.random.choices(names, [FAULTS[name] for name in names])
            self._do(name)
            time.sleep(self.random.uniform(*self.plan.gap))
        self._mend()

    def _strike_once(self) -> None:
        """One fault after a calm: the others have watched for a lease."""
        time.sleep(1.5 * self.plan.lease)
        self._tend()
        self._do(self.random.choice(["kill", "kill_leader", "freeze", "strike_rebalance", "kill_half"]))

    def _do(self, name: str) -> None:
        what = getattr(self, f"_{name}")()
        self.deeds.append(f"{time.time() - self._began:7.2f} {name} {what or ''}".rstrip())

    def _calm(self, bound: float) -> None:
        began = time.time()
        self._wait_until_recovered(bound + 1 if self.plan.has_bounds else self.plan.patience)
        time.sleep(0.2)
        bound = bound if self.plan.has_bounds else self.plan.patience
        self.history.calms.append(Calm(began, time.time(), bound))
        self.deeds.append(f"{time.time() - self._began:7.2f} calm since {began - self._began:.2f}")

    def _wait_until_recovered(self, patience: float) -> None:
        """The checker decides later whether that was so."""
        with contextlib.suppress(TimeoutError):
            until(self._is_recovered, patience)

    def _is_recovered(self) -> bool:
        self._reap()
        groups = self._ask("SELECT count(*) FROM watchbill.token_groups")
        return bool(groups == len(self.plan.groups) and self._ask(STRANDED, self._well_pids()) == 0)

    def _well_pids(self) -> list[int]:
        return [each.pid for each in self.processes if each.is_alive and not each.is_frozen and not each.is_leaving]

    def _come_to_an_end(self) -> None:
        """No more faults, and no more pins: all must become quiet."""
        for process in self.processes:
            self._thaw(process)
        self._ask("SELECT sum(watchbill.clear_pins(name)) FROM watchbill.token_groups")
        if self._producer is not None:
            self._producer.stop()
            self.history.sent_jobs = dict(self._producer.sent)
        try:
            until(self._is_quiet, self.plan.patience * 2)
        except TimeoutError:
            self.violations.append(f"After {self.plan.patience * 2:g} s of quiet there are {self._find_unquiet()}.")
        self.history.read_tables(self.server.url)
        self.violations += check_end(self.history)
        for process in [each for each in self.processes if each.is_alive]:
            self._leave_politely(process)
            try:
                code = process.popen.wait(60)
            except subprocess.TimeoutExpired:
                self.violations.append(f"{process.name} does not end:\n{self._ask_for_stacks(process)}")
                continue
            if code != 0 and not (code == -signal.SIGTERM and self._has_no_node(process)):
                self.violations.append(f"{process.name} ended with code {code}")

    def _ask_for_stacks(self, process: Process) -> str:
        """The end of its log, with the stacks of its threads."""
        length = process.log.stat().st_size
        process.send(signal.SIGUSR1)
        with contextlib.suppress(TimeoutError):
            until(lambda: process.log.stat().st_size > length, patience=10)
        return process.log.read_text(errors="replace")[-6000:]

    def _has_no_node(self, process: Process) -> bool:
        """A signal that came before it had registered found nothing to end."""
        return self._ask("SELECT 1 FROM watchbill.nodes WHERE pid = %s AND state <> 'left'", process.pid) is None

    def _is_quiet(self) -> bool:
        self._reap()
        return self._find_unquiet() == ""

    def _find_unquiet(self) -> str | None:
        """What has not come to an end; None if the server does not answer."""
        try:
            with psycopg.connect(self.server.url, autocommit=True, options="-c statement_timeout=2s") as connection:
                ((found,),) = connection.execute(UNQUIET, {"pids": self._well_pids()}).fetchall()
        except psycopg.OperationalError:
            return None
        return str(found)

    def _judge(self) -> None:
        self.history.read_tables(self.server.url)
        self.history.read_answers(journal.read(self.directory / "journal"))
        self.violations += check(self.history)
        for process in self.processes:
            text = process.log.read_text(errors="replace")
            if "Traceback" in text or "CRITICAL" in text:
                place = max(text.find("Traceback"), text.find("CRITICAL"))
                self.violations.append(f"{process.name}: {text[max(0, place - 500) : place + 3000]}")

    # -- processes

    def _start(self, kind: str, name: str | None = None) -> Process:
        number = len(self.processes)
        name = name or f"{kind}-{number}"
        place = self.random.randrange(4)  # half of them are behind one of the proxies
        url = self.proxies[place].url("watchbill") if place < 2 else self.server.url
        log = self.directory / f"{number}-{name}.log"
        words = [kind, url, name, str(self.plan.lease), str(self.directory / "journal"), str(self.random.random())[2:]]
        with log.open("wb") as output:
            popen = subprocess.Popen(
                [sys.executable, "-m", "tests.cluster.storm.programs", *words],
                cwd=ROOT, env=environment(), stdout=output, stderr=output, start_new_session=True,
                preexec_fn=_die_with_the_tests,
            )  # fmt: skip
        life = self.history.lives[popen.pid] = Life(popen.pid, time.time())
        process = Process(name, kind, popen, log, life)
        self.processes.append(process)
        return process

    def _well(self, kind: str | None = None) -> list[Process]:
        return [
            each
            for each in self.processes
            if each.is_alive and not each.is_frozen and not each.is_leaving and kind in (None, each.kind)
        ]

    def _pick(self) -> Process | None:
        return self.random.choice(found) if (found := self._well()) else None

    def _reap(self) -> None:
        """A process that ends by itself is a fault of ours, except at its start when there is no database."""
        for process in self.processes:
            if not process.is_alive and process.life.ended > time.time():
                process.life.ended = time.time()
                if not process.is_leaving and process.popen.returncode != NO_DATABASE:
                    self.violations.append(f"{process.name} ended by itself with code {process.popen.returncode}")

    def _tend(self) -> None:
        """Keeps the number of processes in its limits, and thaws some that were frozen."""
        self._reap()
        for kind, least in (("member", self.plan.members), ("worker", self.plan.workers)):
            for _ in range(max(0, least // 2 + 1 - len(self._well(kind))) if least else 0):
                self._start(kind)
        for process in self.processes:
            if process.is_frozen and self.random.random() < 0.3:
                self._thaw(process)

    def _kill_process(self, process: Process) -> None:
        process.life.ended = time.time()
        process.is_leaving = True
        process.popen.kill()
        process.popen.wait()

    def _freeze_process(self, process: Process) -> None:
        process.life.freezes.append((time.time(), inf))
        process.is_frozen = True
        process.send(signal.SIGSTOP)

    def _thaw(self, process: Process) -> None:
        if process.is_frozen:
            process.send(signal.SIGCONT)
            begin, _ = process.life.freezes[-1]
            process.life.freezes[-1] = (begin, time.time())
            process.is_frozen = False

    def _leave_politely(self, process: Process) -> None:
        process.life.ended = min(process.life.ended, time.time())
        process.is_leaving = True
        process.send(signal.SIGTERM)

    def _replace(self, process: Process) -> None:
        """By one with the same name, with another name, or by none; sometimes by two."""
        way = self.random.random()
        if way < 0.3:
            self._start(process.kind, process.name)
        for _ in range(0 if way < 0.5 else 1 if way < 0.9 else 2):
            if len(self._well(process.kind)) < self.plan.most:
                self._start(process.kind)

    # -- faults

    def _join(self) -> str | None:
        kinds = [kind for kind, least in (("member", self.plan.members), ("worker", self.plan.workers)) if least]
        kind = self.random.choice(kinds)
        return self._start(kind).name if len(self._well(kind)) < self.plan.most else None

    def _leave(self) -> str | None:
        if (process := self._pick()) is None:
            return None
        self._leave_politely(process)
        if self.random.random() < 0.5:
            self._replace(process)
        return process.name

    def _kill(self) -> str | None:
        if (process := self._pick()) is None:
            return None
        self._kill_process(process)
        self._replace(process)
        return process.name

    def _kill_half(self) -> str:
        chosen = self.random.sample(found := self._well(), len(found) // 2)
        for process in chosen:
            self._kill_process(process)
        for process in chosen:
            self._replace(process)
        return " ".join(process.name for process in chosen)

    def _kill_leader(self) -> str | None:
        for process in (leaders := self._find_leaders()):
            self._kill_process(process)
            self._replace(process)
        return " ".join(process.name for process in leaders) or None

    def _find_leaders(self) -> list[Process]:
        names = [f"leader/{group}" for group in self.plan.groups]
        pids = {pid for (pid,) in self._rows(LEADERS, names)}
        return [each for each in self._well() if each.pid in pids]

    def _freeze(self) -> str | None:
        if (process := self._pick()) is None or len(self._well()) < 2:
            return None
        self._freeze_process(process)
        return process.name

    def _freeze_leader(self) -> str | None:
        for process in (leaders := self._find_leaders()):
            self._freeze_process(process)
        return " ".join(process.name for process in leaders) or None

    def _thaw_all(self) -> str:
        frozen = [each for each in self.processes if each.is_frozen]
        for process in frozen:
            self._thaw(process)
        return " ".join(each.name for each in frozen)

    def _strike_rebalance(self) -> str | None:
        """Makes the leader's transaction wait before it commits, and strikes the leader meanwhile."""
        if self._ask("UPDATE public.switch SET pause = 0.6 RETURNING 1") is None:
            return None
        try:
            self._ask("SELECT count(*) FROM (SELECT watchbill.request_rebalance(name) FROM watchbill.token_groups) x")
            if (process := self._pick()) is not None and len(self._well(process.kind)) > 1:
                self._leave_politely(process)
                self._start(process.kind)
            with contextlib.suppress(TimeoutError):
                until(lambda: self._ask("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"), patience=3)
            how = self.random.choice(["kill", "freeze", "terminate", "kill and terminate"])
            leaders = self._find_leaders()
            for each in leaders:
                if how == "freeze":
                    self._freeze_process(each)
                elif how != "terminate":
                    self._kill_process(each)
                    self._replace(each)
            if "terminate" in how:
                self._ask("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")
        finally:
            until(lambda: self._ask("UPDATE public.switch SET pause = 0 RETURNING 1"), patience=60)
        return f"{how} {' '.join(each.name for each in leaders)}"

    def _cut(self) -> str:
        proxy = self.random.choice(self.proxies)
        return f"{proxy.cut(self.random, self.random.choice([0.3, 1.0]))} connections"

    def _swallow(self) -> str:
        """Until the burst ends, or for a part of it."""
        number = self.random.randrange(len(self.proxies))
        self.proxies[number].swallow()
        return f"proxy {number}"

    def _delay(self) -> str:
        self.random.choice(self.proxies).delay(seconds := self.random.choice([0.05, 0.3, 1.0]))
        return f"{seconds} s"

    def _behave(self) -> None:
        for proxy in self.proxies:
            if self.random.random() < 0.3:
                proxy.cut()
            proxy.behave()

    def _terminate(self) -> str:
        query = """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
            WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND random() < %s"""
        return f"{self._ask(query, self.random.choice([0.2, 0.5, 1.0]))} sessions"

    def _restart(self) -> str:
        way = self.random.choice([signal.SIGINT, signal.SIGQUIT])
        outage = self.random.choice([0.0, 0.5, 1.5]) * self.plan.lease
        self.server.stop(way)
        time.sleep(outage)
        self.server.start()
        return f"{way.name}, away for {outage:.1f} s"

    def _crash(self) -> None:
        with contextlib.suppress(psycopg.OperationalError):
            self.server.crash()

    def _rebalance(self) -> None:
        self._ask("SELECT watchbill.request_rebalance(%s)", self.random.choice(self.plan.groups))

    def _pin(self) -> str | None:
        if not self.plan.members:
            return None
        name = self.random.choice(["member-%", "nobody", *(each.name for each in self._well("member"))])
        group = App(self.server.url).cluster.group(ITEMS, tokens=TOTAL, handover_timeout=HANDOVER_SECONDS)
        key = self.random.choice(PINNED_KEYS)
        with contextlib.suppress(WatchbillError, psycopg.Error):
            group.clear_pins(key) if self.random.random() < 0.4 else group.pin(key, name)
        group.producer.runtime.close()
        return f"{key} {name}"

    def _mend(self) -> None:
        """Ends what would not end by itself; about half of the frozen processes stay frozen."""
        for proxy in self.proxies:
            proxy.behave()
        for process in self.processes:
            if process.is_frozen and self.random.random() < 0.5:
                self._thaw(process)
        for kind, least in (("member", self.plan.members), ("worker", self.plan.workers)):
            if least and not self._well(kind):
                self._start(kind)
        until(lambda: self._ask("SELECT 1"), patience=60)

    def _ask(self, query: str, *params: Any) -> Any:
        rows = self._rows(query, *params)
        return rows[0][0] if rows else None

    def _rows(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        try:
            return self.server.sql(query, *params)
        except psycopg.OperationalError:  # it may be recovering from a crash
            return []

    def report(self) -> str:
        times = sorted(seconds for _, seconds in recovery_times(self.history) if seconds is not None)
        kinds = Counter(deed.split()[1] for deed in self.deeds)
        faults = ", ".join(f"{name} {count}" for name, count in sorted(kinds.items()) if name != "calm")
        recovery = f"median {times[len(times) // 2]:.1f} s, longest {times[-1]:.1f} s" if times else "none"
        history = self.history
        lines = [
            f"seed {self.plan.seed}: {len(self.processes)} processes; faults: {faults}; recovery: {recovery}",
            f"{len(history.works)} works, {len(history.changes)} changes of tokens, {len(history.answers)} answers",
            *self.violations[:20],
        ]
        if self.violations:
            lines += [f"kept: {self.directory}", "Faults:", *self.deeds]
        return "\n".join(lines)


class _Producer:
    """Enqueues numbered jobs of each key, one after the other."""

    def __init__(self, url: str) -> None:
        self.sent = dict.fromkeys(JOB_KEYS, 0)
        self._app = App(url)
        self._task = declare_work(self._app)
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="storm producer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        if not self._is_stopped.is_set():
            self._is_stopped.set()
            if self._thread.ident is not None:
                self._thread.join()
            self._app.close()

    def _run(self) -> None:
        while not self._is_stopped.wait(0.02):
            key = min(self.sent, key=lambda key: self.sent[key])
            self._send(key, self.sent[key])
            self.sent[key] += 1

    def _send(self, key: str, sequence: int) -> None:
        """Until it is acknowledged, under one idempotency key. Also after the end of the storm was asked for."""
        job = self._task.using(idempotency_key=f"{key} {sequence}")
        while True:
            try:
                job.enqueue(key=key, sequence=sequence)
            except (WatchbillError, psycopg.Error):
                time.sleep(0.1)
            else:
                return


FAULTS = {
    "join": 3,
    "leave": 3,
    "kill": 4,
    "kill_half": 1,
    "kill_leader": 2,
    "freeze": 4,
    "freeze_leader": 1,
    "thaw_all": 2,
    "strike_rebalance": 3,
    "cut": 2,
    "swallow": 2,
    "delay": 1,
    "behave": 2,
    "terminate": 1,
    "restart": 1,
    "crash": 1,
    "rebalance": 1,
    "pin": 2,
}

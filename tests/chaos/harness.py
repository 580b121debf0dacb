"""Workers, producers, operators and faults, all drawn from one seed, until the work is done; then the checker speaks.

A run has two halves. In the first, producers send and faults happen, for a given time. In the second nothing is broken
any more, and everything must come to its end by itself: nothing may be stuck, and nothing may be left behind.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self

import psycopg

from tests.chaos import flow_tasks, journal
from tests.chaos.application import app
from tests.chaos.checker import Violation, check
from tests.chaos.flow_checker import find_holds
from tests.chaos.history import History
from tests.chaos.producers import Producer, acknowledge, external_job
from tests.chaos.promises import PROMISES
from tests.chaos.proxy import Proxy
from tests.chaos.server import ChaosServer
from tests.chaos.workers import Worker, Workers
from tests.pooler import run_pooler
from tests.servers import _place
from tests.waiting import until
from watchbill.client import operations
from watchbill.client.client import Client
from watchbill.postgres.embedded import Binaries
from watchbill.verify.invariants import Part, read_invariants

SHELL_QUEUE = "shell"
NO_DATABASE = 3
SETTINGS = {"drain_timeout": "5", "poll_interval": "50ms", "poll_max_interval": "500ms", "concurrency": "4"}

# Ordered keys whose dead job pauses them, until an operator frees them.
PAUSED_KEYS = """
    SELECT h.key, h.job_id
    FROM watchbill.holds h
    WHERE h.key LIKE 'order:strict:%' AND NOT EXISTS (SELECT FROM watchbill.jobs j WHERE j.id = h.job_id)"""


def seed_of_environment() -> int:
    """CHAOS_SEED repeats a run, as far as the machine's own pace lets it."""
    return int(os.environ.get("CHAOS_SEED") or Random().randrange(10**6))


@dataclass(frozen=True)
class Plan:
    seed: int
    seconds: float
    jobs: int
    direct: int = 2
    proxied: int = 2
    producers: int = 2
    supervised: int = 0  # supervisors of two processes each
    pooled: int = 0  # behind a pooler in transaction mode
    external: int = 1
    lease: int = 2
    gap: tuple[float, float] = (0.2, 1.5)  # between two faults
    patience: float = 60.0  # for the second half


@dataclass
class Chaos:
    """`with Chaos(binaries, plan) as chaos: chaos.run()`; then `chaos.violations` and `chaos.report()`."""

    binaries: Binaries
    plan: Plan
    violations: list[Violation | str] = field(default_factory=list)
    deeds: list[str] = field(default_factory=list)

    def __enter__(self) -> Self:
        self.random = Random(self.plan.seed)
        self.directory = Path(tempfile.mkdtemp(prefix="chaos-", dir=_place()))
        (self.directory / "journal").mkdir()
        self.journal = journal.Journal(self.directory / "journal")
        self.server = ChaosServer(self.binaries).__enter__()
        with Client(self.server.url) as client:  # as an App does before its first job with a limit
            client.run(app.producer._ensure_rules())
        self.proxy = Proxy(self.server.socket).__enter__()
        self._open = contextlib.ExitStack()
        self.pooler = self._open.enter_context(run_pooler(self.server))
        settings = SETTINGS | {"lease": str(self.plan.lease)}
        self.workers = Workers(self.directory, self.directory / "journal", settings)
        self._later: list[tuple[float, Callable[[], object]]] = []
        self._began = time.monotonic()
        self._places: dict[str, Callable[[], Worker | None]] = {}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.workers.kill_all()
        self._open.close()
        self.proxy.__exit__()
        if error is None and not self.violations:
            shutil.rmtree(self.directory)
        else:
            shutil.copy(self.server.log, self.directory)
        self.server.__exit__()

    # -- the run

    def run(self) -> None:
        self._start_workers()
        producers = self._start_producers()
        self._enqueue_external()
        end = time.monotonic() + self.plan.seconds
        while time.monotonic() < end:
            self._do_later()
            self._replace_the_dead()
            self._break_something()
            self._probe()
            time.sleep(self.random.uniform(*self.plan.gap))
        self._mend()
        for producer in producers:
            self._end_production(producer)
        self._come_to_an_end()
        self._judge()

    def _end_production(self, producer: Producer) -> None:
        """On a busy machine it may not have come to its last job: then there are fewer."""
        producer.join(60)
        producer.stop()
        producer.join(60)
        if producer.failure is not None:
            raise producer.failure
        assert not producer.is_alive(), f"{producer.name} does not end"

    def _start_workers(self) -> None:
        for n in range(self.plan.direct + self.plan.proxied):
            url = self.server.url if n < self.plan.direct else self.proxied_url
            self._place(partial(self.workers.start, url))
        for _ in range(self.plan.supervised):
            self._place(partial(self.workers.start, self.server.url, "--processes", "2"))
        for _ in range(self.plan.pooled):
            self._place(partial(self.workers.start, self.pooler.url("watchbill"), handlers_url=self.server.url))
        for _ in range(self.plan.external):
            self._place(
                lambda: self.workers.start_external(self.server.url, SHELL_QUEUE, 3, str(self.binaries.directory))
            )

    def _place(self, start: Callable[[], Worker | None]) -> None:
        """Somewhere a worker runs; when it dies, another is started there."""
        worker = start()
        if worker is not None:
            self._places[worker.name] = start

    @property
    def proxied_url(self) -> str:
        return self.proxy.url("watchbill")

    def _start_producers(self) -> list[Producer]:
        each = self.plan.jobs // self.plan.producers
        pace = self.plan.seconds / each
        urls = [self.server.url, self.proxied_url]
        producers = [
            Producer(urls[n % 2], self.journal, self.plan.seed * 1000 + n, each, pace=pace)
            for n in range(self.plan.producers)
        ]
        for producer in producers:
            producer.start()
        return producers

    def _enqueue_external(self) -> None:
        if not any(worker.name.startswith("shell") for worker in self.workers.all):
            return
        with Client(self.server.url) as client:
            for _ in range(10):
                job = external_job(self.journal, SHELL_QUEUE)
                acknowledge(self.journal, job, client.run(operations.enqueue(job)).id)

    def _probe(self) -> None:
        """What `watchbill verify` finds in any snapshot is found at no moment."""
        for invariant in read_invariants():
            if invariant.kind == "S":
                query = invariant.write("watchbill", Part()).as_string()
                with contextlib.suppress(psycopg.OperationalError):
                    if rows := self.server.sql(query):
                        self.violations.append(f"{invariant.says}: {rows[:3]}")

    # -- faults

    def _break_something(self) -> None:
        names = list(FAULTS)
        (name,) = self.random.choices(names, [FAULTS[name] for name in names])
        what = getattr(self, f"_{name}")()
        self.deeds.append(f"{time.monotonic() - self._began:7.2f} {name} {what or ''}".rstrip())

    def _pick(self) -> Worker | None:
        living = [w for w in self.workers.all if w.alive and not w.frozen and w.name in self._places]
        return self.random.choice(living) if living else None

    def _replace(self, worker: Worker) -> None:
        start = self._places.pop(worker.name)
        self._place(start)

    def _replace_the_dead(self) -> None:
        """One that ends by itself is no better than a bug, except at its start when there is no database. The example
        in shell may too, since it has no patience."""
        for worker in self.workers.all:
            if not worker.alive and worker.name in self._places and time.monotonic() > worker.started + 1:
                if not worker.name.startswith("shell") and worker.process.returncode != NO_DATABASE:
                    self.violations.append(f"{worker.name} ended by itself with code {worker.process.returncode}")
                self._replace(worker)

    def _kill(self) -> str | None:
        if (worker := self._pick()) is None:
            return None
        worker.kill()
        self._replace(worker)
        return worker.name

    def _freeze(self) -> str | None:
        """Past its lease, or not quite."""
        if (worker := self._pick()) is None:
            return None
        seconds = self.random.choice([0.5, 1.5, 2.5]) * self.plan.lease
        worker.freeze()
        self._in(seconds, worker.thaw)
        return f"{worker.name} for {seconds:.1f} s"

    def _kill_child(self) -> str | None:
        """It takes its own job with it, and no other."""
        children = [pid for worker in self.workers.all if worker.alive for pid in worker.children()]
        if not children:
            return None
        pid = self.random.choice(children)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return str(pid)

    def _drain(self) -> str | None:
        """By a signal, or by an operator's word."""
        if (worker := self._pick()) is None:
            return None
        by_word = self.random.random() < 0.5 and worker.nodes == 1
        name = self._ask("SELECT name FROM watchbill.nodes WHERE pid = %s AND state = 'active'", worker.process.pid)
        if not (by_word and name and self._ask("SELECT watchbill.drain(%s)", name)):
            worker.signal(signal.SIGTERM)
            by_word = False
        self._replace(worker)
        return f"{worker.name} {'by word' if by_word else ''}"

    def _restart(self) -> str:
        way = self.random.choice([signal.SIGINT, signal.SIGQUIT])
        outage = self.random.choice([0.0, 0.5, 1.5 * self.plan.lease])
        self.server.stop(way)
        time.sleep(outage)
        self.server.start()
        return f"{way.name}, away for {outage:.1f} s"

    def _crash(self) -> None:
        self.server.crash()

    def _terminate(self) -> str:
        share = self.random.choice([0.2, 0.5, 1.0])
        query = """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
            WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND random() < %s"""
        return f"{self._ask(query, share)} sessions"

    def _cut(self) -> str:
        return f"{self.proxy.cut(self.random, self.random.choice([0.3, 1.0]))} connections"

    def _swallow(self) -> str:
        seconds = self.random.choice([0.5, 1.5, 3.0]) * self.plan.lease
        then_cut = self.random.random() < 0.5
        self.proxy.swallow()
        if then_cut:
            self._in(seconds, self.proxy.cut)
        self._in(seconds, self.proxy.behave)
        return f"for {seconds:.1f} s{', then cut' if then_cut else ''}"

    def _delay(self) -> str:
        seconds = self.random.choice([0.05, 0.3, 1.0])
        self.proxy.delay(seconds)
        self._in(2.0, self.proxy.behave)
        return f"{seconds} s"

    def _cancel(self) -> str:
        """Some job that waits or runs; forced now and then."""
        force = self.random.random() < 0.3
        return self._operate("cancel", "SELECT watchbill.cancel(%s, 'chaos', %s)", force)

    def _release(self) -> str:
        return self._operate("release", "SELECT watchbill.release(%s)")

    def _lock(self) -> str:
        """An operator who begins to cancel something, goes away for a while, and then thinks better of it."""
        seconds = self.random.uniform(0.5, 6)
        told = self._keep(
            "SELECT watchbill.cancel(id, force => true) FROM watchbill.jobs ORDER BY fence <> 0 DESC LIMIT 5", seconds
        )
        return f"{told} for {seconds:.1f} s"

    def _remember(self) -> str:
        """A snapshot that is kept: what has ended since cannot be cleared away."""
        seconds = self.random.uniform(2, 20)
        told = self._keep("SELECT count(*) FROM watchbill.jobs", seconds, psycopg.IsolationLevel.REPEATABLE_READ)
        return f"{told} for {seconds:.1f} s"

    def _keep(self, query: str, seconds: float, isolation: psycopg.IsolationLevel | None = None) -> str:
        """A transaction that is open for so long, and is rolled back."""
        try:
            connection = psycopg.connect(self.server.url, options="-c statement_timeout=2s")
        except psycopg.OperationalError:
            return "nothing"
        self._in(seconds, connection.close)
        self._open.callback(connection.close)
        connection.isolation_level = isolation
        try:
            return str([str(value) for (value,) in connection.execute(query.encode())])
        except psycopg.Error as error:
            return type(error).__name__

    def _pause(self) -> str:
        """A type or a queue, for a while."""
        types = [f"type => '{name}'" for name in ("quick", "write_async", "limited", "ordered", "batched", "rated")]
        what = self.random.choice([*types, "queue => 'default'", "queue => 'fair'", "queue => 'routed'"])
        seconds = self.random.uniform(0.2, 2)
        self._ask(f"SELECT watchbill.pause({what})")
        self._in(seconds, lambda: until(lambda: self._ask(f"SELECT watchbill.resume({what})") is not None, patience=60))
        return f"{what} for {seconds:.1f} s"

    def _limit(self) -> str:
        """An operator changes a limit, while jobs hold it."""
        most = self.random.randint(1, 5)
        self.journal.write("limit_asked", key="api", max=most)
        try:
            self._ask("SELECT watchbill.set_limit('api', max => %s)", most, otherwise_raise=True)
        except psycopg.OperationalError:
            return f"api to {most}, perhaps"
        self.journal.write("limit_set", key="api", max=most)
        return f"api to {most}"

    def _forgive(self) -> str:
        """Of an ordered key whose dead job pauses it: an operator frees it, or has the job run again."""
        for key, job_id in self._paused_keys():
            if self.random.random() < 0.5:
                return self._clear(key)
            flow_tasks.forgiven(str(self.directory / "journal"), str(job_id)).touch()
            self.journal.write("retry", id=job_id)
            return f"{job_id}: {self._ask('SELECT watchbill.reschedule(%s)', job_id)}"
        return "nothing"

    def _paused_keys(self) -> list[tuple[Any, ...]]:
        try:
            return self.server.sql(PAUSED_KEYS)
        except psycopg.OperationalError:
            return []

    def _clear(self, key: str) -> str:
        self.journal.write("clear", key=key)
        return f"{key}: {self._ask('SELECT watchbill.clear_limit(%s)', key)}"

    def _operate(self, verb: str, query: str, *more: Any) -> str:
        job_id = self._ask(
            "SELECT id FROM watchbill.jobs WHERE type <> 'external' ORDER BY fence <> 0 DESC, random() LIMIT 1"
        )
        if job_id is None:
            return "nothing"
        try:
            answer = self._ask(query, job_id, *more, otherwise_raise=True)
        except psycopg.OperationalError:
            answer = None
        self.journal.write(verb, id=job_id, answer=answer)
        return f"{job_id}: {answer}"

    def _ask(self, query: str, *params: Any, otherwise_raise: bool = False) -> Any:
        try:
            rows = self.server.sql(query, *params)
        except psycopg.OperationalError:  # it may be recovering from a crash
            if otherwise_raise:
                raise
            return None
        return rows[0][0] if rows else None

    def _in(self, seconds: float, action: Callable[[], object]) -> None:
        self._later.append((time.monotonic() + seconds, action))

    def _do_later(self) -> None:
        due = [entry for entry in self._later if entry[0] <= time.monotonic()]
        self._later = [entry for entry in self._later if entry not in due]
        for _, action in due:
            action()

    # -- the second half

    def _mend(self) -> None:
        for _, action in self._later:
            action()
        self._later.clear()
        self.proxy.behave()
        for worker in self.workers.all:
            worker.thaw()

    def _come_to_an_end(self) -> None:
        """Cancels what ends no other way, and waits for all the rest."""
        try:
            until(self._is_drained, patience=self.plan.patience)
        except TimeoutError:
            self.violations.append(f"It has not come to an end within {self.plan.patience} s.")
        for name, code in self.workers.stop().items():
            if code not in (0, NO_DATABASE) and name.startswith("worker") and not self._has_left(name):
                self.violations.append(f"{name} ended with code {code}")

    def _has_left(self, name: str) -> bool:
        """A signal that came before it had registered, or when it had already left, found nothing to drain."""
        (worker,) = [worker for worker in self.workers.all if worker.name == name]
        held = "SELECT count(*) FROM watchbill.nodes WHERE pid = %s AND state <> 'left'"
        return worker.process.returncode == -signal.SIGTERM and not self._ask(held, worker.process.pid)

    def _is_drained(self) -> bool:
        self._replace_the_dead()
        # Counted before keys are freed: a job that dies after that pauses its key.
        left = self._ask("SELECT (SELECT count(*) FROM watchbill.jobs) + (SELECT count(*) FROM watchbill.claims)")
        for (job_id,) in self.server.sql("SELECT id FROM watchbill.jobs WHERE type = 'long' AND NOT canceling"):
            self.journal.write("cancel", id=job_id, answer=self._ask("SELECT watchbill.cancel(%s)", job_id))
        for key, _ in self._paused_keys():
            self._clear(key)
        nodes = self.server.sql("SELECT n.pid FROM watchbill.nodes n JOIN watchbill.beats b USING (epoch)")
        return left == 0 and all(Path(f"/proc/{pid}").exists() for (pid,) in nodes)

    def _judge(self) -> None:
        self.history = History.of_records(journal.read(self.directory / "journal"))
        self.history.read_tables(self.server.url)
        self.violations += check(self.history)
        self.violations += self.workers.complaints()
        if self.violations:
            self.history.keep(self.directory / "tables.json")

    def report(self) -> str:
        states = Counter(row["state"] for row in self.history.tables["finished_jobs"])
        outcomes = Counter(row["outcome"] for row in self.history.tables["attempts"])
        nodes = Counter(row["state"] for row in self.history.tables["nodes"])
        flow = self._count_flow()
        summary = (
            f"CHAOS_SEED={self.plan.seed}; {len(self.history.sent)} sent, {dict(states)}; attempts {dict(outcomes)}"
        )
        lines = [
            f"{summary}; nodes {dict(nodes)}; {len(self.deeds)} faults; {flow}; {self.directory}",
            *map(str, self.violations[:40]),
        ]
        if self.violations:
            lines += ["Faults:", *self.deeds]
        return "\n".join(lines)

    def _count_flow(self) -> str:
        """How much the rules of flow control had to judge."""
        flow = [sent for sent in self.history.sent.values() if sent.type in PROMISES]
        told = sum(bool(sent.others) for sent in flow)
        claims = sum(len(self.history.claims[sent.id]) for sent in flow)
        held = sum(map(len, find_holds(self.history).values()))
        started = sum(map(len, self.history.starts.values()))
        return (
            f"{len(flow)} with flow control, {told} duplicates, {claims} claims of these; {held} of {started} runs held"
        )


FAULTS = {
    "kill": 4,
    "freeze": 4,
    "kill_child": 1,
    "drain": 2,
    "restart": 1,
    "crash": 1,
    "terminate": 2,
    "cut": 3,
    "swallow": 2,
    "delay": 2,
    "cancel": 4,
    "release": 4,
    "pause": 2,
    "lock": 2,
    "remember": 1,
    "limit": 2,
    "forgive": 3,
}

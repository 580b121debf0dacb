"""What looking at a large installation costs, beside one that works: `make bench-operations [ROWS=10000000]`.

The installation has ROWS unfinished jobs (100 queues, 1,000 types, 10 priorities, a third due later, a tenth blocked),
twice as many finished ones over three days, dead ones in 50 groups, 1,000 schedules and 20 nodes. It is kept, so only
the first run loads it.

First the answers that people wait for are measured, each some times. Then real workers run no-ops, in slices that take
turns: alone, and beside the observer, five viewers who read what pages read every five seconds, and a scrape.

What counts is the CPU time of the server's processes, because the clock says little on a machine that does other
things. Times by the clock are printed, not judged.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psycopg
from psycopg import sql

from benchmarks.places import ADMIN_DSN, ENV, OUR_PYTHON, POSTGRES_PORT, ROOT
from benchmarks.servers import start_postgres
from watchbill.client import figure_operations, job_operations, schedule_operations
from watchbill.client.metrics import read_metrics
from watchbill.client.operations import Operation
from watchbill.filters.condition import write_conditions
from watchbill.filters.parser import parse_filter
from watchbill.store.queries import queries
from watchbill.verify.look import Verifier

PARTS = {
    name: text.strip()
    for name, text in re.findall(
        r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", (Path(__file__).parent / "operations.sql").read_text(), re.M | re.S
    )
}
CHUNK = 250_000
QUERIES = queries("watchbill")
JOBS_PER_SECOND = 1000
VIEWERS, VIEW_SECONDS = 5, 5.0
NODES = 20
ANSWERS = 40  # how often each answer is asked for
PAGES = 1000
APP = """
from watchbill import App

app = App(name="bench")


@app.task(type="noop", queue="bench")
async def noop(n: int) -> None:
    pass
"""


class Session:
    """A connection whose server process is measured, statement by statement."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True, prepare_threshold=1)
        self._stat = Path(f"/proc/{self.connection.info.backend_pid}/schedstat")
        self.costs: list[float] = []  # CPU milliseconds of each statement
        self.times: list[float] = []  # by the clock

    def cpu(self) -> float:
        return int(self._stat.read_text().split()[0]) / 1e6

    def execute(self, statement: str, params: Sequence[Any] = ()) -> list[Any]:
        before, began = self.cpu(), time.perf_counter()
        cursor = self.connection.execute(statement.encode(), params)
        rows = cursor.fetchall() if cursor.description else []
        self.costs.append(self.cpu() - before)
        self.times.append((time.perf_counter() - began) * 1000)
        return rows

    def run(self, operation: Operation[Any]) -> Any:
        try:
            statement = next(operation)
            while True:
                statement = operation.send(self.execute(QUERIES[statement.query], statement.params))  # type: ignore[arg-type, union-attr]
        except StopIteration as end:
            return end.value

    def blocks(self, statement: str, params: Sequence[Any] = ()) -> int:
        explain = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"
        (((plan, *_),),) = self.connection.execute(explain.encode(), params).fetchall()
        return int(plan["Plan"]["Shared Hit Blocks"]) + int(plan["Plan"]["Shared Read Blocks"])


# -- the installation


def find_database(rows: int) -> str:
    return f"bench_operations_{rows}"


def prepare(rows: int) -> str:
    """Returns the address of the loaded installation."""
    name = find_database(rows)
    url = ADMIN_DSN.rpartition("/")[0] + f"/{name}"
    with psycopg.connect(ADMIN_DSN, autocommit=True) as admin:
        found = admin.execute(
            "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = %s", (name,)
        ).fetchone()
        if found is None or found[0] != "loaded":
            admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
            admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            migrate(url)
            load(url, rows)
            admin.execute(sql.SQL("COMMENT ON DATABASE {} IS 'loaded'").format(sql.Identifier(name)))
    migrate(url)
    return url


def migrate(url: str) -> None:
    command = [str(OUR_PYTHON), "-m", "watchbill.cli", "--database-url", url, "db", "migrate"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def load(url: str, rows: int) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        for name, number in {
            "partitions": 0, "unfinished": rows, "dependencies": 0, "awaited": 0, "succeeded": 2 * rows,
            "dead": rows // 100, "attempts": 0, "groups": 0, "schedules": 0, "rollups": 0,
        }.items():  # fmt: skip
            began = time.monotonic()
            for first in range(0, max(number, 1), CHUNK):
                values = {"first": first, "count": min(CHUNK, number - first), "of": number}
                connection.execute(PARTS[name].encode(), values)
            print(f"  loaded {name} in {time.monotonic() - began:.0f} s", flush=True)
        connection.execute("VACUUM ANALYZE")


@contextmanager
def nodes(url: str) -> Iterator[None]:
    """So many nodes with a long lease, which serve all queues of the backlog but claim nothing."""
    with psycopg.connect(url, autocommit=True) as connection:
        epochs = [
            connection.execute(
                "SELECT watchbill.register(%s, lease => '1 day', app => 'bench', queues => %s, capacity => 40)",
                (f"node {number} {time.time():.0f}", [f"queue{q}" for q in range(number, 100, NODES)]),
            ).fetchone()
            for number in range(NODES)
        ]
        try:
            yield
        finally:
            for row in epochs:
                assert row is not None
                connection.execute("SELECT watchbill.leave(%s)", row)


# -- answers


@dataclass
class Answer:
    """What one kind of question costs: CPU milliseconds of each time, and the most blocks."""

    name: str
    wanted: str
    costs: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    blocks: int = 0

    def show(self) -> str:
        return (
            f"{self.name:36} CPU median {statistics.median(self.costs):7.1f} ms, most {max(self.costs):7.1f} ms;"
            f" clock median {statistics.median(self.times):7.1f} ms; blocks {self.blocks:7,}   wanted {self.wanted}"
        )


PAGE = "SELECT * FROM watchbill.job_page(%s::jsonb, %s::uuid, 20000, 50)"
WHY = "SELECT * FROM watchbill.why_job(%s::uuid)"


def filter_of(text: str) -> str:
    return write_conditions(parse_filter(text))


def ask(session: Session, name: str, wanted: str, statement: str, params: Callable[[int], Sequence[Any]]) -> Answer:
    answer = Answer(name, wanted)
    for number in range(ANSWERS):
        session.costs.clear()
        session.times.clear()
        session.execute(statement, params(number))
        answer.costs += session.costs
        answer.times += session.times
        if number < 5:
            answer.blocks = max(answer.blocks, session.blocks(statement, params(number)))
    print(answer.show(), flush=True)
    return answer


def measure_answers(url: str, rows: int) -> None:
    session = Session(url)
    for kind, condition in {
        "ready": "wait IS NULL", "delayed": "wait = 'delayed'", "blocked": "wait = 'blocked'",
    }.items():  # fmt: skip
        chosen = session.execute(
            f"SELECT id FROM watchbill.jobs TABLESAMPLE SYSTEM (1) WHERE {condition} LIMIT {ANSWERS}"
        )
        ask(session, f"why of a {kind} job", "20 ms", WHY, lambda n, chosen=chosen: (chosen[n % len(chosen)][0],))  # type: ignore[misc]
    empty = filter_of("")
    first = ask(session, "page 1 of a list", "15 ms", PAGE, lambda _: (empty, None))
    after = _walk(session, empty, min(PAGES, rows // 100))
    last = ask(session, f"page {min(PAGES, rows // 100):,}", "1.5 x page 1", PAGE, lambda _: (empty, after))
    ratio = statistics.median(last.costs) / statistics.median(first.costs)
    print(f"{'':36} page 1,000 by page 1: {ratio:.2f}")
    for text in ("type:nothing", "payload.user:999999", "state:dead error:nothing", "state:succeeded type:nothing"):
        ask(session, text, "50 ms a step", PAGE, lambda _, text=text: (filter_of(text), None))  # type: ignore[misc]
    for text in ("state:running", "state:dead", "state:blocked", "queue:queue7 state:queued"):
        ask(session, text, "15 ms", PAGE, lambda _, text=text: (filter_of(text), None))  # type: ignore[misc]
    series = _measure_scrape(session)
    print(f"{'':36} series: {series:,}   wanted < 2,000")
    _measure_verify(url)


def _walk(session: Session, conditions: str, pages: int) -> Any:
    after = None
    statement = "SELECT next FROM watchbill.job_page(%s::jsonb, %s::uuid, 20000, 50) WHERE id IS NULL"
    for _ in range(pages):
        ((after,),) = session.execute(statement, (conditions, after))
    return after


def _measure_scrape(session: Session) -> int:
    costs, times, text = [], [], ""
    for _ in range(ANSWERS):
        session.costs.clear()
        session.times.clear()
        text = session.run(read_metrics())
        costs.append(sum(session.costs))
        times.append(sum(session.times))
    print(Answer("/metrics, its statements", "15 ms", costs, times).show())
    return sum(not line.startswith("#") for line in text.splitlines())


def _measure_verify(url: str) -> None:
    session = Session(url)
    began, before = time.monotonic(), session.cpu()
    verifier = Verifier(session.connection, "watchbill", second_look=0.0, patience=1.0)
    found = list(verifier.look_quickly())
    took, cpu = time.monotonic() - began, (session.cpu() - before) / 1000
    print(f"{'quick verify':36} {took:.1f} s by the clock, {cpu:.2f} s of CPU, {len(found)} findings   wanted 10 s")
    for each in found[:5]:
        print(f"    {each.state} {each.invariant} {each.subject}: {each.what}"[:160])


# -- beside work


def view(session: Session) -> None:
    """What the overview, the list of jobs, failures, nodes and schedules read."""
    now = datetime.now(UTC)
    session.run(figure_operations.samples("all", since=now - timedelta(hours=3)))
    session.run(figure_operations.queue_figures())
    session.run(figure_operations.figures("all", "minute", since=now - timedelta(hours=3)))
    session.run(figure_operations.figures("type", "minute", since=now - timedelta(hours=1)))
    session.run(figure_operations.failures())
    session.run(job_operations.read_page(filter_of("state:failed"), limit=50))
    session.run(job_operations.nodes())
    session.run(schedule_operations.stats())


class Viewers:
    """Threads that read every five seconds, each with a connection of its own. The last one is the scrape."""

    def __init__(self, url: str) -> None:
        self.sessions = [Session(url) for _ in range(VIEWERS + 1)]
        self.observer = Session(url)
        self._over = Event()
        self._threads: list[Thread] = []
        self._failure: Exception | None = None

    def start(self) -> None:
        self._over.clear()
        self.observer.connection.execute("UPDATE watchbill.chore_marks SET due_at = clock_timestamp()")
        works = [view] * VIEWERS + [lambda session: session.run(read_metrics())]
        self._threads = [
            Thread(target=self._repeat, args=(session, work))
            for session, work in zip(self.sessions, works, strict=True)
        ]
        self._threads.append(Thread(target=self._observe))
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        if self._failure is not None:
            raise self._failure
        self.observer.connection.execute(
            "UPDATE watchbill.chore_marks SET due_at = clock_timestamp() + interval '1 day'"
        )

    def _repeat(self, session: Session, work: Callable[[Session], Any]) -> None:
        while not self._over.is_set():
            try:
                work(session)
            except Exception as error:  # noqa: BLE001  (the run raises it)
                self._failure = error
                return
            self._over.wait(VIEW_SECONDS)

    def _observe(self) -> None:
        """Does what a node would, in a process of its own, sooner than the worker: so its cost is seen apart."""
        while not self._over.is_set():
            ((pause,),) = self.observer.execute("SELECT watchbill._observe()")
            self._over.wait(min(max(pause or 0.0, 0.05), 1.0))


@dataclass
class Slice:
    """`rate` in jobs per second, `pickup` the 99th percentile of the wait in milliseconds."""

    rate: float
    pickup: float


def measure_work(url: str, slices: int, seconds: float) -> None:
    with ExitStack() as stack:
        stack.enter_context(worker(url))
        viewers = Viewers(url)
        stack.callback(viewers.observer.connection.close)
        found: dict[bool, list[Slice]] = defaultdict(list)
        watched = 0.0
        viewers.stop()
        run_slice(url, 5.0)  # the worker has started, and plans are made
        for number in range(slices):
            is_watched = number % 2 == 1
            if is_watched:
                viewers.start()
            began = time.monotonic()
            try:
                found[is_watched].append(run_slice(url, seconds))
            finally:
                if is_watched:
                    viewers.stop()
                    watched += time.monotonic() - began
            print(f"  {'watched' if is_watched else 'alone':8} {found[is_watched][-1]}", flush=True)
        _print_work(viewers, found, watched)


def run_slice(url: str, seconds: float) -> Slice:
    """Enqueues at a steady rate, waits until all have run, and returns how fast and how soon."""
    with psycopg.connect(url, autocommit=True) as connection:
        (began,) = connection.execute("SELECT clock_timestamp()").fetchone() or (None,)
        clock, sent = time.monotonic(), 0
        while (elapsed := time.monotonic() - clock) < seconds:
            due = int(elapsed * JOBS_PER_SECOND) - sent
            if due > 0:
                connection.execute(
                    """SELECT count(*) FROM watchbill.enqueue_many((
                      SELECT jsonb_agg(jsonb_build_object('type', 'noop', 'queue', 'bench', 'payload',
                        jsonb_build_object('n', n)))
                      FROM generate_series(1, %s) n))""",
                    (due,),
                )
                sent += due
            time.sleep(0.02)
        finished = """
            SELECT count(*), extract(epoch FROM max(f.finished_at) - min(f.created_at)),
              percentile_cont(0.99) WITHIN GROUP (ORDER BY f.started_at - f.run_at)
            FROM watchbill.finished_jobs f
            WHERE f.queue = 'bench' AND f.finished_at >= %s"""
        until = time.monotonic() + 60
        while True:
            number, took, pickup = connection.execute(finished, (began,)).fetchone() or (0, 0, None)
            if number >= sent:
                return Slice(number / float(took), pickup.total_seconds() * 1000)
            if time.monotonic() > until:
                raise SystemExit(f"only {number} of {sent} jobs have run")
            time.sleep(0.5)


@contextmanager
def worker(url: str) -> Iterator[None]:
    """A worker as people start it. The marks of the observer are far ahead, so the worker leaves it to the viewers."""
    directory = ENV / "operations"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "noops.py").write_text(APP)
    command = [
        str(OUR_PYTHON),
        "-m",
        "watchbill.cli",
        "--database-url",
        url,
        "worker",
        "noops:app",
        "--queues",
        "bench",
    ]
    with (directory / "worker.log").open("w") as log:
        started = subprocess.Popen(command, cwd=directory, stdout=log, stderr=log)
    try:
        yield
    finally:
        started.terminate()
        started.wait(60)


def _print_work(viewers: Viewers, found: dict[bool, list[Slice]], watched: float) -> None:
    costs = {
        "viewers": [cost for each in viewers.sessions[:-1] for cost in each.costs],
        "scrape": viewers.sessions[-1].costs,
        "observer": viewers.observer.costs,
    }
    for name, values in costs.items():
        print(
            f"{name:36} {sum(values) / 1000 / watched:.4f} core, {len(values):,} statements,"
            f" CPU p99.9 {_percentile(values, 0.999):.1f} ms, most {max(values):.1f} ms"
        )
    total = sum(sum(values) for values in costs.values()) / 1000 / watched
    print(f"{'all of these':36} {total:.4f} core   wanted 0.02; p99.9 30 ms")
    for name, read in {"throughput": lambda s: s.rate, "pick-up p99": lambda s: s.pickup}.items():
        with_, without = (statistics.median(map(read, found[key])) for key in (True, False))
        print(f"{name:36} {with_:,.1f} watched, {without:,.1f} alone: {with_ / without:.3f}")


def _percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--slices", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60.0, help="of a slice")
    parser.add_argument("--only", choices=("answers", "work"), help="one part")
    options = parser.parse_args()
    stop = start_postgres()
    try:
        print(f"{options.rows:,} unfinished jobs; port {POSTGRES_PORT}; {os.cpu_count()} cores")
        url = prepare(options.rows)
        with nodes(url):
            if options.only != "work":
                measure_answers(url, options.rows)
            if options.only != "answers":
                measure_work(url, options.slices, options.seconds)
    finally:
        if stop is not None:
            stop()


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()

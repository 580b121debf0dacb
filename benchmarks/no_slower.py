"""Whether this tree is slower than another commit: `python -m benchmarks.no_slower COMMIT [PATH...]`.

Both trees work in turns on one server, each on a database of its own, in slices of a second or less. Two kinds of
figures say more than the clock on a machine that does other things:

- CPU time per job, of the sessions in the server and of the worker or producer. Of the ratios of neighboring slices the
  median counts. It must be between 0.97 and 1.03, or lower. `server` and `client` are the ratios of its two parts.
- counted work per job, over the whole run: transactions, entries written to indexes, bytes of WAL. WAL may grow by 1 %,
  the others not at all. What depends on how a worker divides its work into batches varies by a few percent.

    enqueue      `task.enqueue`, one job per transaction
    drain        a no-op task and `watchbill worker` with default settings
    keys         the same with Limit(1) on 1,000 keys, one job of each after the other
    tick         due schedules become jobs
    claims       claims of 1,000 plain jobs and their settlement, through the SQL functions
    interleaved, runs, ordered, fair, routed     the same for the scenarios of flow_control_bench.py

`time` is the ratio of the seconds that the slices took: it needs many slices, or a quiet machine. A commit from before
the package had its present name is measured under the name that it had.

With `--row-security`, row security is on, and producer, worker and scheduler log in with roles of their own. Then only
the first four paths are measured.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from tests.servers import Server, find_servers

from benchmarks.flow_control_bench import SCENARIOS, Session, measure, process_cpu

ROOT = Path(__file__).parent.parent
LARGEST_RATIO, LARGEST_WAL_RATIO = 1.03, 1.01
LARGEST_COUNT_RATIO = 1.005
LARGEST_COUNT_RATIO_OF_WORKER = 1.05  # which divides its work into batches as time allows
LONGEST_SECONDS = 120  # of a slice
SCHEDULES = 40_000
SCHEDULES_OF_A_TICK = 500

_APP = """
import sys

from {package} import App

app = App()


@app.task(type="plain")
async def plain(number: int) -> None: ...


if {keys}:  # not otherwise: the database would know a limit
    from {package} import Limit

    @app.task(type="limited", limits=[Limit(1, name="key", by="{{key}}")])
    async def limited(number: int, key: int) -> None: ...


def enqueue_singly(count: int) -> None:
    for number in range(count):
        plain.enqueue(number)


def enqueue_at_once(count: int) -> None:
    app.enqueue_many([limited.bind(n, n % 1000) if {keys} else plain.bind(n) for n in range(count)])


if __name__ == "__main__":  # each line is a command and a number of jobs
    for line in sys.stdin:
        command, count = line.split()
        (enqueue_singly if command == "singly" else enqueue_at_once)(int(count))
        print("done", flush=True)
"""

_TRANSACTIONS = "SELECT d.xact_commit FROM pg_stat_database d WHERE d.datname = current_database()"
_POSITION = "SELECT pg_current_wal_insert_lsn()::text"
_NEW_ENTRIES = ("INSERT_LEAF", "INSERT_POST", "SPLIT_L", "SPLIT_R")  # records of the WAL that add an entry to a B-tree

NO_JOBS = "SELECT NOT EXISTS (SELECT FROM {schema}.jobs)"
ANY_NODE = "SELECT EXISTS (SELECT FROM {schema}.nodes)"

_SCHEDULES = """
    INSERT INTO {schema}.schedules (name, pattern, type, payload)
    SELECT 's' || n, n % 60 || ' 3 * * *', 'plain', jsonb_build_object('number', n)
    FROM generate_series(1, {count}) n"""

_MAKE_DUE = """
    UPDATE {schema}.timers SET next_run = date_trunc('second', now())
    WHERE schedule_id IN (
      SELECT s.id
      FROM generate_series(%s::int, %s::int) n
      JOIN {schema}.schedules s ON s.name = 's' || n)"""


@dataclass
class Figures:
    """Of one tree on one path."""

    jobs: int = 0
    cpu: list[float] = field(default_factory=list)  # microseconds per job, of each slice
    server_cpu: list[float] = field(default_factory=list)  # of it, what the sessions in the server used
    seconds: list[float] = field(default_factory=list)  # of each slice
    wal: int = 0
    index_entries: int = 0
    transactions: int = 0

    def list_client_cpu(self) -> list[float]:
        """What the worker or producer used."""
        return [cpu - server for cpu, server in zip(self.cpu, self.server_cpu, strict=True)]


@dataclass
class Side:
    """One of the two trees, with its database."""

    name: str
    tree: Path
    server: Server
    folder: Path
    database: str = ""
    row_security: bool = False
    figures: Figures = field(default_factory=Figures)

    @property
    def package(self) -> str:
        """The name of the package in this tree, which is that of its command and its schema too."""
        return next(file.parent.name for file in (self.tree / "src").glob("*/__init__.py"))

    def query(self, text: LiteralString, **values: Any) -> sql.Composed:
        literals = {name: sql.Literal(value) for name, value in values.items()}
        return sql.SQL(text).format(schema=sql.Identifier(self.package), **literals)

    @property
    def url(self) -> str:
        return self.server.url(self.database)

    def url_of(self, role: str) -> str:
        return self.server.url(self.database, f"{self.database}_{role}") if self.row_security else self.url

    def environment(self, role: str = "owner") -> dict[str, str]:
        url = self.url if role == "owner" else self.url_of(role)
        return {**os.environ, "PYTHONPATH": str(self.tree / "src"), f"{self.package.upper()}_DATABASE_URL": url}

    def run_command(self, *words: str) -> None:
        command = [sys.executable, "-m", f"{self.package}.cli", *words]
        subprocess.run(command, check=True, cwd=self.folder, env=self.environment(), stdout=subprocess.DEVNULL)

    def start(self, role: str, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=self.folder,
            env=self.environment(role),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def create_roles(self) -> None:
        self.run_command("db", "roles", "create", "--prefix", self.database)
        for role in ("producer", "worker"):
            # The groups have these names, and may log in here. A producer names its tenant.
            group = sql.Identifier(f"{self.database}_{role}")
            self.server.execute(sql.SQL("ALTER ROLE {} LOGIN").format(group))
            if role == "producer":
                self.server.execute(sql.SQL("ALTER ROLE {} SET watchbill.tenant = 'default'").format(group))
        self.run_command("db", "tenants", "enable")

    def server_cpu(self, watcher: psycopg.Connection[Any]) -> float:
        """Seconds of all sessions of this database, but not of the watcher."""
        query = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        return sum(process_cpu(pid) for (pid,) in watcher.execute(query).fetchall())


class Counter:
    """What the server has written for one side since the block began."""

    def __init__(self, side: Side, watcher: psycopg.Connection[Any]) -> None:
        self._side, self._watcher, self._wal = side, watcher, self._read_wal(watcher)

    def add_wal(self) -> None:
        self._side.figures.wal += self._read_wal(self._watcher) - self._wal

    @staticmethod
    def _read_wal(watcher: psycopg.Connection[Any]) -> int:
        ((position,),) = watcher.execute("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint").fetchall()
        return int(position)


def read_transactions(side: Side) -> int:
    """Sessions report them when they end."""
    with psycopg.connect(side.url, autocommit=True) as connection:
        ((transactions,),) = connection.execute(_TRANSACTIONS).fetchall()
        return int(transactions)


class IndexWatch:
    """Counts what is written to indexes, from the WAL: a partial index has an entry for some rows only."""

    def __init__(self, server: Server) -> None:
        self._server = server
        server.execute(sql.SQL("ALTER SYSTEM SET wal_keep_size = '4GB'").format())
        server.execute(sql.SQL("SELECT pg_reload_conf()").format())
        self._connection = psycopg.connect(server.url(), autocommit=True)
        self._connection.execute("SET synchronous_commit = on")  # so that a commit writes the WAL to its file
        self._folder = str(self._connection.execute("SHOW data_directory").fetchall()[0][0]) + "/pg_wal"

    def close(self) -> None:
        self._connection.close()

    def position(self) -> str:
        self._connection.execute("SELECT pg_logical_emit_message(true, 'no_slower', 'here')")
        return str(self._connection.execute(_POSITION).fetchall()[0][0])

    def count_entries_since(self, start: str) -> int:
        program = str(self._server.binaries.directory / "pg_waldump")
        words = ["--path", self._folder, "--start", start, "--end", self.position(), "--rmgr", "Btree"]
        done = subprocess.run([program, *words], check=True, capture_output=True, text=True)
        return sum(any(f"desc: {name} " in line for name in _NEW_ENTRIES) for line in done.stdout.splitlines())


Slice = Callable[[int], None]  # gets the number of the slice


@contextmanager
def enqueue(side: Side, jobs: int) -> Iterator[Slice]:
    producer = side.start("producer", "program.py")
    with psycopg.connect(side.url, autocommit=True) as watcher:
        send(producer, "singly", 200)  # connects, and prepares its statements

        def enqueue_slice(number: int) -> None:
            counter, server, client = Counter(side, watcher), side.server_cpu(watcher), process_cpu(producer.pid)
            began = time.perf_counter()
            send(producer, "singly", jobs)
            seconds = time.perf_counter() - began
            record(side, jobs, seconds, side.server_cpu(watcher) - server, process_cpu(producer.pid) - client)
            counter.add_wal()

        try:
            yield enqueue_slice
        finally:
            stop(producer)


@contextmanager
def drain(side: Side, jobs: int) -> Iterator[Slice]:
    worker = side.start("worker", "-m", f"{side.package}.cli", "worker", "program:app")
    no_jobs = side.query(NO_JOBS)
    with psycopg.connect(side.url, autocommit=True) as watcher:
        wait_until(watcher, side.query(ANY_NODE))  # it has declared its limits
        producer = side.start("producer", "program.py")
        send(producer, "at_once", 1000)
        wait_until(watcher, no_jobs)

        def drain_slice(number: int) -> None:
            worker.send_signal(signal.SIGSTOP)  # so that it finds all jobs of the slice at once
            send(producer, "at_once", jobs)
            watcher.execute(side.query("VACUUM ANALYZE {schema}.jobs"))
            watcher.execute("CHECKPOINT")
            counter, server, client = Counter(side, watcher), side.server_cpu(watcher), process_cpu(worker.pid)
            began = time.perf_counter()
            worker.send_signal(signal.SIGCONT)
            wait_until(watcher, no_jobs)
            seconds = time.perf_counter() - began
            record(side, jobs, seconds, side.server_cpu(watcher) - server, process_cpu(worker.pid) - client)
            counter.add_wal()

        try:
            yield drain_slice
        finally:
            stop(producer)
            stop(worker)


@contextmanager
def tick(side: Side, jobs: int) -> Iterator[Slice]:
    with (
        psycopg.connect(side.url, autocommit=True) as watcher,
        psycopg.connect(side.url_of("worker"), autocommit=True, prepare_threshold=1) as scheduler,
    ):
        watcher.execute(side.query(_SCHEDULES, count=SCHEDULES))
        watcher.execute("VACUUM ANALYZE")
        pid = scheduler.info.backend_pid

        def tick_slice(number: int) -> None:
            watcher.execute(side.query(_MAKE_DUE), (number * jobs + 1, (number + 1) * jobs))
            watcher.execute(side.query("VACUUM ANALYZE {schema}.timers"))
            counter, before, began = Counter(side, watcher), process_cpu(pid), time.perf_counter()
            for _ in range(0, jobs, SCHEDULES_OF_A_TICK):
                scheduler.execute(side.query("SELECT {schema}.tick(%s)"), (SCHEDULES_OF_A_TICK,))
            record(side, jobs, time.perf_counter() - began, process_cpu(pid) - before)
            counter.add_wal()

        yield tick_slice


def run_scenario(name: str) -> Callable[[Side, int], Any]:
    scenario = SCENARIOS[name]

    @contextmanager
    def open_session(side: Side, jobs: int) -> Iterator[Slice]:
        session = Session(side.url, scenario)

        def measure_slice(number: int) -> None:
            began = time.perf_counter()
            cost = measure(session, scenario, jobs, ahead=False)
            side.figures.wal += int(cost.wal * jobs)
            record(side, jobs, time.perf_counter() - began, cost.run * jobs / 1e6)

        yield measure_slice
        session.connection.close()

    return open_session


PATHS: dict[str, Callable[[Side, int], Any]] = {
    "enqueue": enqueue,
    "drain": drain,
    "keys": drain,
    "tick": tick,
    "claims": run_scenario("plain"),
    **{name: run_scenario(name) for name in ("interleaved", "runs", "ordered", "fair", "routed")},
}
JOBS = {"enqueue": 2000, "tick": 1000}  # of a slice
WITHOUT_SESSIONS = PATHS.keys() - {"enqueue", "drain", "keys"}
PATHS_WITH_ROLES = ("enqueue", "drain", "keys", "tick")


def send(producer: subprocess.Popen[str], command: str, count: int) -> None:
    assert producer.stdin
    assert producer.stdout
    print(command, count, file=producer.stdin, flush=True)
    if producer.stdout.readline() != "done\n":
        raise RuntimeError("the producer has ended")


def stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGCONT)
    process.terminate()
    process.communicate(timeout=60)


def wait_until(watcher: psycopg.Connection[Any], query: sql.Composed) -> None:
    end = time.monotonic() + LONGEST_SECONDS
    while watcher.execute(query).fetchone() != (True,):
        if time.monotonic() > end:
            raise TimeoutError(query.as_string(watcher))
        time.sleep(0.005)


def record(side: Side, jobs: int, seconds: float, server: float, client: float = 0) -> None:
    side.figures.jobs += jobs
    side.figures.seconds.append(seconds)
    side.figures.cpu.append((server + client) / jobs * 1e6)
    side.figures.server_cpu.append(server / jobs * 1e6)


def compare(path: str, sides: list[Side], slices: int, jobs: int, indexes: IndexWatch) -> tuple[Figures, Figures]:
    """Runs slices of both sides in turns; each side is the first one in every second pair."""
    for side in sides:
        prepare(side, path)
    before = {side.name: read_transactions(side) for side in sides}
    with ExitStack() as stack:
        run = {side.name: stack.enter_context(PATHS[path](side, jobs)) for side in sides}
        for side in sides:
            run[side.name](0)  # plans, caches
            side.figures = Figures()
        for number in range(1, slices + 1):
            for side in sides if number % 2 else reversed(sides):
                start = indexes.position()
                run[side.name](number)
                side.figures.index_entries += indexes.count_entries_since(start)
    for side in sides:
        side.figures.transactions = read_transactions(side) - before[side.name]
    base, head = (side.figures for side in sides)
    return base, head


def prepare(side: Side, path: str) -> None:
    side.database = side.server.create_database()
    side.figures = Figures()
    side.folder.mkdir(exist_ok=True)
    (side.folder / "program.py").write_text(_APP.format(keys=path == "keys", package=side.package))
    side.run_command("db", "migrate")
    if side.row_security:
        side.create_roles()


def describe(path: str, base: Figures, head: Figures) -> tuple[str, bool]:
    """A line of the table, and whether the path is no slower."""
    ratios = divide_slices(head.cpu, base.cpu)
    cpu, low, high = statistics.median(ratios), ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
    server, client = (
        statistics.median(divide_slices(*(part(figures) for figures in (head, base))))
        for part in (lambda figures: figures.server_cpu, Figures.list_client_cpu)
    )
    seconds = statistics.median(divide_slices(head.seconds, base.seconds))
    wal, entries, transactions = (
        divide(getattr(head, name), getattr(base, name)) for name in ("wal", "index_entries", "transactions")
    )
    if path in WITHOUT_SESSIONS:  # of their own: most transactions are the benchmark's
        transactions = 1.0
    largest_count = LARGEST_COUNT_RATIO_OF_WORKER if PATHS[path] is drain else LARGEST_COUNT_RATIO
    good = cpu <= LARGEST_RATIO and wal <= LARGEST_WAL_RATIO and max(entries, transactions) <= largest_count
    line = (
        f"{path:12} {statistics.median(base.cpu):8.1f} {statistics.median(head.cpu):8.1f} "
        f"{cpu:7.3f} ({low:.2f}..{high:.2f}) {server:7.3f} {client:7.3f} {seconds:7.3f} "
        f"{wal:8.3f} {entries:8.3f} {transactions:8.3f}  "
        f"{'ok' if good else 'SLOWER'}"
    )
    return line, good


def divide_slices(after: list[float], before: list[float]) -> list[float]:
    return sorted(divide(new, old) for new, old in zip(after, before, strict=True))


def divide(after: float, before: float) -> float:
    return after / before if before else 1.0


@contextmanager
def check_out(commit: str, folder: Path) -> Iterator[Path]:
    git = ["git", "-C", str(ROOT)]
    subprocess.run([*git, "worktree", "add", "--quiet", "--detach", str(folder), commit], check=True)
    try:
        yield folder
    finally:
        subprocess.run([*git, "worktree", "remove", "--force", str(folder)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit", help="the tree to compare with, for example HEAD~1")
    parser.add_argument("paths", nargs="*", help=", ".join(PATHS))
    parser.add_argument("--slices", type=int, default=10)
    parser.add_argument("--jobs", type=int, help="of a slice; 20,000 by default, fewer for enqueue and tick")
    parser.add_argument("--row-security", action="store_true")
    options = parser.parse_args()
    if unknown := set(options.paths) - PATHS.keys():
        parser.error(f"unknown path {', '.join(sorted(unknown))}; choose from {', '.join(PATHS)}")
    paths = options.paths or (PATHS_WITH_ROLES if options.row_security else PATHS)
    server = Server.start(find_servers()[0])
    indexes = IndexWatch(server)
    all_good = True
    try:
        with tempfile.TemporaryDirectory() as folder, check_out(options.commit, Path(folder, "base")) as tree:
            sides = [
                Side(name, root, server, Path(folder, f"{name}-program"), row_security=options.row_security)
                for name, root in (("before", tree), ("now", ROOT))
            ]
            print(
                f"{'':12} {'CPU us per job':^17} {'ratio (quartiles)':^20} {'server':>7} {'client':>7} {'time':>7} "
                f"{'WAL':>8} {'indexes':>8} {'trans.':>8}"
            )
            for path in paths:
                jobs = options.jobs or JOBS.get(path, 20_000)
                line, good = describe(path, *compare(path, sides, options.slices, jobs, indexes))
                print(line, flush=True)
                all_good = all_good and good
    finally:
        indexes.close()
        server.stop()
    sys.exit(not all_good)


if __name__ == "__main__":
    main()

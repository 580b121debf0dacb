"""What limits, rates, order and turns cost: `python -m benchmarks.flow_control_bench [SCENARIO...]`.

Each scenario enqueues jobs, then claims and settles them in batches through the SQL functions, as a worker does. It
measures the CPU time of the server's process, which says more than the clock on a machine that does other things. Each
figure stands beside that of plain jobs, measured in turns in the same run.

With `--ahead`, each batch is settled after the next claim, as by a worker that claims ahead. Then the jobs of a claim
hold their keys while the next claim looks for jobs, so almost every limited job is set aside once.

With `--held`, a snapshot stays open all the time, so that nothing can be vacuumed. Each figure then stands beside that
of the same jobs without the snapshot.

`--rates WAITING` measures something else: 100 keys that start one job a second each, while so many jobs wait for them.
It gives the part of a core that promotion, claims and settlements take, on a clock that is moved by hand: if all keys
may start their jobs at the same moment of each second, and if each has a moment of its own. With `--worker`, a worker
does the work, and the figures are those of all processes of the server and of the worker.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from tests.servers import Server, find_servers

from watchbill.store.install import install

LARGEST_CLAIM = 1000  # jobs, as of a worker
BULK = 1000  # jobs of one enqueue
FREE_SLOTS = 20
KEYS = 100  # with a rate


@dataclass(frozen=True)
class Scenario:
    """Jobs of one kind, and what has to be declared before."""

    about: str
    job: Callable[[int], dict[str, Any]]
    setup: tuple[str, ...] = ()
    wanted: float | None = None  # at least this part of the plain rate
    hot: int = 0  # jobs of one limited key that are ahead of the jobs that are measured
    hot_is_ready: bool = False  # as if each of these was enqueued alone; a bulk parks them at once


def _keyed(number: int, key: int, **options: Any) -> dict[str, Any]:
    return {"type": "t", "payload": {"n": number, "account": key}, **options}


_LIMIT = ("SELECT watchbill.set_limit('account', 1)",)
_FAIR = ("INSERT INTO watchbill.queues (name, lanes, fair_by) VALUES ('default', 'share', '{account}')",)
_ROUTED = (
    "SELECT watchbill.declare_group('cells', 1024)",
    "SELECT watchbill.route_queue('default', 'cells')",
    """INSERT INTO watchbill.tokens (token_group, token, epoch, fence)
       SELECT 'cells', n, %(epoch)s, 1 FROM generate_series(0, 1023) n""",
)

SCENARIOS = {
    "plain": Scenario("no limits", lambda n: _keyed(n, n)),
    "interleaved": Scenario(
        "Limit(1) on 1,000 keys, one job of each after the other",
        lambda n: _keyed(n, n % 1000, limit_keys=["account:{account}"]),
        _LIMIT,
        0.45,
    ),
    "runs": Scenario(
        "Limit(1) on 1,000 keys, 100 jobs of each after the other",
        lambda n: _keyed(n, n // 100 % 1000, limit_keys=["account:{account}"]),
        _LIMIT,
        0.25,
    ),
    "ordered": Scenario(
        "1,000 ordered keys, one job of each after the other",
        lambda n: _keyed(n, n % 1000, ordered_by="{account}"),
        (),
        0.25,
    ),
    "ordered-runs": Scenario(
        "1,000 ordered keys, 100 jobs of each after the other",
        lambda n: _keyed(n, n // 100 % 1000, ordered_by="{account}"),
    ),
    "fair": Scenario("fair queue of 10,000 shares", lambda n: _keyed(n, n % 10_000), _FAIR, 0.6),
    "hot": Scenario(
        "plain jobs behind 100,000 jobs of one key with Limit(1), enqueued in bulks",
        lambda n: _keyed(n, n),
        _LIMIT,
        0.9,
        hot=100_000,
    ),
    "hot-singly": Scenario(
        "plain jobs behind 100,000 jobs of one key with Limit(1), enqueued one by one: claims set them aside",
        lambda n: _keyed(n, n),
        _LIMIT,
        0.9,
        hot=100_000,
        hot_is_ready=True,
    ),
    "routed": Scenario("routed queue", lambda n: _keyed(n, n % 10_000, route_by="{account}"), _ROUTED),
}

HELD_WANTED = {"fair": 0.5, "routed": 0.5}  # at least this part of the rate without a held snapshot


class Cost(NamedTuple):
    """Microseconds of the server's CPU time per job, and bytes of WAL per job."""

    enqueue: float
    claim: float
    settle: float
    wal: float

    @property
    def run(self) -> float:
        return self.claim + self.settle


class Session:
    """A connection whose server process is measured, with a registered node."""

    def __init__(self, url: str, scenario: Scenario) -> None:
        self.connection = psycopg.connect(url, autocommit=True, prepare_threshold=1)
        self.epoch = self.value("SELECT watchbill.register('bench', lease => '1 hour')")
        for statement in scenario.setup:
            self.connection.execute(statement, {"epoch": self.epoch})

    def cpu(self) -> float:
        """Microseconds."""
        return int(Path(f"/proc/{self.connection.info.backend_pid}/schedstat").read_text().split()[0]) / 1000

    def wal(self) -> int:
        return int(self.value("SELECT pg_current_wal_insert_lsn() - '0/0'"))

    def value(self, statement: str, *arguments: object) -> Any:
        row = self.connection.execute(statement, arguments or None).fetchone()
        assert row is not None
        return row[0]

    def enqueue(self, jobs: list[dict[str, Any]]) -> None:
        self.value("SELECT count(*) FROM watchbill.enqueue_many(%s::jsonb)", json.dumps(jobs))

    def claim(self, limit: int = LARGEST_CLAIM) -> list[Any]:
        return self.connection.execute(
            "SELECT id, fence FROM watchbill.claim(%s, '{default}', %s, %s)",
            (self.epoch, limit, FREE_SLOTS),
            binary=True,
        ).fetchall()

    def settle(self, rows: list[Any], now: datetime | None = None) -> None:
        self.connection.execute(
            """SELECT * FROM watchbill.settle(
                 %s, %s::uuid[], %s::bigint[], ages => %s::float8[], closed => %s::bigint[], now => %s)""",
            (
                self.epoch,
                [job for job, _ in rows],
                [fence for _, fence in rows],
                [0.001] * len(rows),
                list({fence for _, fence in rows}),
                now,
            ),
        )


def measure(session: Session, scenario: Scenario, jobs: int, *, ahead: bool) -> Cost:
    enqueue = claim = settle = 0.0
    for _ in range(0, scenario.hot, BULK):
        session.enqueue([_keyed(0, 0, priority=1, limit_keys=["account:{account}"])] * BULK)
    if scenario.hot_is_ready:
        session.connection.execute("UPDATE watchbill.jobs SET wait = NULL, wait_key = NULL WHERE wait = 'parked'")
    for first in range(0, jobs, BULK):
        bulk = [scenario.job(number) for number in range(first, first + BULK)]
        before = session.cpu()
        session.enqueue(bulk)
        enqueue += session.cpu() - before
    session.connection.execute("VACUUM ANALYZE watchbill.jobs")
    session.connection.execute("CHECKPOINT")
    done, wal, unsettled = 0, session.wal(), list[list[Any]]()
    while done < jobs:
        before = session.cpu()
        rows = session.claim()
        claim += session.cpu() - before
        if rows:
            unsettled.append(rows)
        elif not unsettled:
            raise RuntimeError(f"{jobs - done} jobs cannot be claimed")
        if len(unsettled) > ahead or not rows:
            before = session.cpu()
            session.settle(unsettled[0])
            settle += session.cpu() - before
            done += len(unsettled.pop(0))
    return Cost(enqueue / jobs, claim / jobs, settle / jobs, (session.wal() - wal) / jobs)


@contextmanager
def a_snapshot(url: str, *, held: bool) -> Iterator[None]:
    """Open while the block runs, if it is held."""
    with psycopg.connect(url, autocommit=True) as connection:
        if held:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            connection.execute("SELECT count(*) FROM watchbill.nodes")
        yield


_RATED_JOBS = """
    INSERT INTO watchbill.jobs
      (id, run_at, created_at, queue, type, class, payload, limit_keys, wait, wait_key)
    SELECT gen_random_uuid(), now(), now(), 'default', 't', 1, '{}', ARRAY[k.key], 'parked', k.key
    FROM generate_series(1, %s) n
    CROSS JOIN LATERAL (SELECT 'key:api:' || n %% 100 AS key) k"""

_MOMENTS = """
    INSERT INTO watchbill.limit_states (key, name, next_at)
    SELECT 'key:api:' || n, 'api', m.at
    FROM generate_series(0, 99) n
    CROSS JOIN LATERAL (SELECT %s + n %% %s * interval '1 second' / %s) m(at)"""


def make_rated_keys(session: Session, waiting: int, moments: int) -> datetime:
    """100 keys with waiting jobs, which may start one job a second each, from the returned time on. The keys start
    their jobs at so many moments of a second."""
    connection = session.connection
    connection.execute("""SELECT watchbill.set_limit('api', rates => '[{"count": 2, "per": 1, "evenly": true}]')""")
    connection.execute(_RATED_JOBS, (waiting,))
    connection.execute("VACUUM ANALYZE watchbill.jobs")
    connection.execute("CHECKPOINT")
    began: datetime = session.value("SELECT clock_timestamp()")
    connection.execute(_MOMENTS, (began, moments, moments))
    return began


def measure_rates(session: Session, waiting: int, seconds: int, moments: int) -> float:
    """The part of a core that 100 starts a second take in the server process of one session."""
    began = make_rated_keys(session, waiting, moments)
    spent, started, warm_up = 0.0, 0, 3
    now = began
    while now < began + timedelta(seconds=seconds + warm_up):
        before = session.cpu()
        session.connection.execute("SELECT watchbill.promote(now => %s)", (now,))
        rows = session.connection.execute(
            "SELECT id, fence FROM watchbill.claim(%s, '{default}', %s, %s, now => %s)",
            (session.epoch, KEYS, KEYS, now),
        ).fetchall()
        if rows:
            session.settle(rows, now)
        if now >= began + timedelta(seconds=warm_up):
            spent += session.cpu() - before
            started += len(rows)
        now = session.value("SELECT watchbill.promote(now => %s)", now)
    _check_starts(started, seconds)
    return spent / 1_000_000 / seconds


def _check_starts(started: int, seconds: float) -> None:
    if started < 0.98 * KEYS * seconds:
        raise RuntimeError(f"only {started} jobs started in {seconds:.1f} seconds")


_WORKER_APP = """
from watchbill import App

app = App()


@app.task(type="t")
async def do_nothing() -> None: ...
"""


def measure_rates_of_worker(session: Session, waiting: int, seconds: int, moments: int) -> tuple[float, float]:
    """The parts of a core that 100 starts a second take in the server, and in a worker."""
    make_rated_keys(session, waiting, moments)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "rated.py").write_text(_WORKER_APP)
        worker = subprocess.Popen(
            [sys.executable, "-m", "watchbill.cli", "worker", "rated:app"],
            cwd=folder,
            env={**os.environ, "WATCHBILL_DATABASE_URL": session.connection.info.dsn},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            time.sleep(10)  # it starts, and catches up
            finished = session.value("SELECT count(*) FROM watchbill.finished_jobs")
            servers, workers, began = _server_cpu(session), process_cpu(worker.pid), time.monotonic()
            time.sleep(seconds)
            servers, workers = _server_cpu(session) - servers, process_cpu(worker.pid) - workers
            passed = time.monotonic() - began
            _check_starts(session.value("SELECT count(*) FROM watchbill.finished_jobs") - finished, passed)
        finally:
            worker.terminate()
            worker.wait()
    return servers / passed, workers / passed


def process_cpu(process: int) -> float:
    """Seconds of all its threads."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def _server_cpu(session: Session) -> float:
    """Seconds of all processes of the server, but not of the session that asks."""
    rows = session.connection.execute("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()").fetchall()
    return sum(process_cpu(process) for (process,) in rows)


@contextmanager
def a_session(server: Server, template: str, scenario: Scenario) -> Iterator[Session]:
    name = server.create_database(template)
    session = Session(server.url(name), scenario)
    try:
        yield session
    finally:
        session.connection.close()
        server.drop_database(name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenarios", nargs="*", default=[name for name in SCENARIOS if name != "plain"])
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--ahead", action="store_true", help="settle a batch after the next claim")
    parser.add_argument("--held", action="store_true", help="hold a snapshot open")
    parser.add_argument("--rates", type=int, metavar="WAITING", help="measure rates instead, with so many waiting jobs")
    parser.add_argument("--worker", action="store_true", help="with --rates: let a worker do the work")
    options = parser.parse_args()
    server = Server.start(find_servers()[0])
    try:
        template = server.create_database()
        install(server.url(template))
        if options.rates:
            for moments in (1, KEYS):
                with a_session(server, template, SCENARIOS["plain"]) as session:
                    if options.worker:
                        parts = measure_rates_of_worker(session, options.rates, 20, moments)
                        found = "{:.1%} of a core in the server, {:.1%} in the worker".format(*parts)
                    else:
                        found = f"{measure_rates(session, options.rates, 20, moments):.1%} of a core"
                print(
                    f"{KEYS} keys at one start a second, at {moments} moments of it, "
                    f"{options.rates:,} waiting jobs: {found}"
                )
            return
        names = ["plain", *options.scenarios]
        costs: dict[str, list[Cost]] = {}
        clean: dict[str, list[Cost]] = {}
        for _ in range(options.repeat):
            for name, held in [
                (name, held) for name in names for held in ((False, True) if options.held else (False,))
            ]:
                scenario = SCENARIOS[name]
                with (
                    a_session(server, template, scenario) as session,
                    a_snapshot(session.connection.info.dsn, held=held),
                ):
                    cost = measure(session, scenario, options.jobs, ahead=options.ahead)
                (costs if held or not options.held else clean).setdefault(name, []).append(cost)
        print("CPU time of the server per job in us, WAL in bytes; median of", options.repeat)
        beside = "of clean" if options.held else "of plain"
        print(f"{'':14} {'enqueue':>8} {'claim':>8} {'settle':>8} {'WAL':>6}  {beside:>8} {'wanted':>7}")
        for name, all_costs in costs.items():
            cost = Cost(*(statistics.median(values) for values in zip(*all_costs, strict=True)))
            others = clean[name] if options.held else costs["plain"]
            ratio = statistics.median(other.run / each.run for other, each in zip(others, all_costs, strict=True))
            wanted = HELD_WANTED.get(name) if options.held else SCENARIOS[name].wanted
            print(
                f"{name:14} {cost.enqueue:8.1f} {cost.claim:8.1f} {cost.settle:8.1f} {cost.wal:6.0f}  {ratio:8.2f} "
                f"{wanted or '':>7}"
            )
    finally:
        server.stop()


if __name__ == "__main__":
    main()

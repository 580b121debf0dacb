"""Steps beside a plain INSERT and DBOS: `python -m benchmarks.steps_bench`, or `make bench-steps`.

Each contestant runs steps that return a small object, in one process: one job, and 64 jobs side by side. The plain
INSERT commits a row per step, on one connection and on 64. All share one server with fsync on, each has a database of
its own, and they take turns, so that they share the noise of the machine: the ratios count, not the rates. DBOS runs in
.bench-env/steps, and is left out where that does not exist.

The bytes of WAL per step are those of the whole server during a slice.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import psycopg
from tests.servers import Server, find_servers

from watchbill import App, AsyncSteps
from watchbill.store.install import install

DBOS_PYTHON = Path(".bench-env/steps/bin/python")
DBOS_PROGRAM = Path(__file__).parent / "adapters" / "steps_dbos.py"
CONTESTANTS = ("insert", "watchbill", "dbos")
MANY = 64


class Slice(NamedTuple):
    per_second: float
    wal_per_step: float


async def insert_rows(url: str, connections: int, seconds: float) -> float:
    """A row and a commit per step."""

    async def insert_until(until: float, job: int) -> int:
        count = 0
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            while time.perf_counter() < until:
                await connection.execute(
                    "INSERT INTO plain_steps VALUES (%s, %s, %s)", (job, f"work#{count}", '{"number": 1}')
                )
                count += 1
        return count

    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        await connection.execute("DROP TABLE IF EXISTS plain_steps")
        await connection.execute("CREATE TABLE plain_steps (job int, name text, result jsonb, PRIMARY KEY (job, name))")
    began = time.perf_counter()
    counts = await asyncio.gather(*(insert_until(began + seconds, job) for job in range(connections)))
    return sum(counts) / (time.perf_counter() - began)


async def run_steps(url: str, jobs: int, seconds: float) -> float:
    app = App(url)
    counts: list[int] = []
    ends: list[float] = []
    all_ended = asyncio.Event()

    async def work(number: int) -> dict[str, int]:
        return {"number": number}

    @app.task(type="steps")
    async def run(steps: AsyncSteps, until: float) -> None:
        count = 0
        while time.time() < until:
            # A key, because a job may have 10,000 steps: `restart` would be a part of what is measured.
            await steps.using(key=str(count)).run(work, count)
            count += 1
        counts.append(count)
        ends.append(time.perf_counter())
        if len(counts) == jobs:
            all_ended.set()

    node = app.make_node()
    running = asyncio.create_task(node.run())
    began, until = time.perf_counter(), time.time() + seconds
    await app.aenqueue_many([run.bind(until) for _ in range(jobs)])
    await all_ended.wait()
    rate = sum(counts) / (max(ends) - began)
    node.stop()
    await running
    await app.aclose()
    return rate


def measure(name: str, url: str, jobs: int, seconds: float) -> Slice:
    if name == "dbos":
        command = [str(DBOS_PYTHON), str(DBOS_PROGRAM), url]
    else:
        command = [sys.executable, "-m", "benchmarks.steps_bench", "--contestant", name, url]
    with psycopg.connect(url, autocommit=True) as connection:
        before = read_wal(connection)
        done = subprocess.run([*command, str(jobs), str(seconds)], capture_output=True, text=True, check=False)
        wal = read_wal(connection) - before
    if done.returncode:
        raise SystemExit(f"{name} failed: {done.stderr[-2000:]}")
    rate = float(done.stdout.split()[-1])
    return Slice(rate, wal / (rate * seconds))


def make_durable(server: Server) -> None:
    """The server of the tests does not wait for its disk."""
    with psycopg.connect(server.url(server.create_database()), autocommit=True) as connection:
        for name in ("fsync", "synchronous_commit", "full_page_writes"):
            connection.execute(f"ALTER SYSTEM SET {name} = 'on'".encode())
        connection.execute("SELECT pg_reload_conf()")


def read_wal(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')").fetchone()
    assert row is not None
    return int(row[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--contestant", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contestant:
        name, url, jobs, seconds = options.contestant
        work = insert_rows if name == "insert" else run_steps
        print(asyncio.run(work(url, int(jobs), float(seconds))))
        return
    names = [name for name in CONTESTANTS if name != "dbos" or DBOS_PYTHON.exists()]
    server = Server.start(find_servers()[0])
    try:
        make_durable(server)
        urls = {name: server.url(server.create_database()) for name in names}
        install(urls["watchbill"])
        for jobs in (1, MANY):
            found: dict[str, list[Slice]] = defaultdict(list)
            for _ in range(options.repeat):
                for name in names:
                    found[name].append(measure(name, urls[name], jobs, options.seconds))
            report(jobs, found)
    finally:
        server.stop()


def report(jobs: int, found: dict[str, list[Slice]]) -> None:
    print(f"{jobs} job{'s' if jobs > 1 else ''} in one process, medians of {len(found['insert'])} slices:")
    for name, slices in found.items():
        ratios = [ours.per_second / other.per_second for ours, other in zip(found["watchbill"], slices, strict=True)]
        rate, wal = (statistics.median(values) for values in zip(*slices, strict=True))
        print(f"  {name:10} {rate:9,.0f} steps/s  {wal:7,.0f} bytes of WAL per step  "
              f"Watchbill has {statistics.median(ratios):.2f} times this rate", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()

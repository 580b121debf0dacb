"""What idle and busy workers of the facade jobforge cost: `python -m benchmarks.worker_bench idle`, and `heartbeats`.

These commands take the place of the two scripts that JobForge's runbook names. A worker process runs with the variables
of that runbook, on the server that the tests use, and the server counts the calls of its functions.

- idle: claims and other statements per minute of a worker without jobs, for several POLL_* values: with notifications,
  and behind a pooler, through which none arrive.
- heartbeats: heartbeats and transactions per minute of a worker with running jobs, for several values of
  HEARTBEAT_INTERVAL_MS, beside the heartbeats that the runbook expects: one for each job.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from psycopg import sql
from tests.pooler import run_pooler
from tests.servers import Server, find_servers

from watchbill import App, Connection
from watchbill.compat.jobforge import QUEUE
from watchbill.store.install import install

POLLING: list[dict[str, str]] = [
    {},
    {"POLL_INTERVAL_MS": "2000", "MAX_POLL_INTERVAL_MS": "10000", "IDLE_BACKOFF_MULTIPLIER": "2"},
    {"POLL_INTERVAL_MS": "2000", "MAX_POLL_INTERVAL_MS": "30000", "IDLE_BACKOFF_MULTIPLIER": "2"},
]
BEATS_MS = (5_000, 30_000, 100_000)
REST_SECONDS = 15  # until the worker has come to rest, and its sessions have reported what they did before
LONGEST_START_SECONDS = 60
_COUNTS = """
SELECT coalesce(sum(calls) FILTER (WHERE funcname = 'claim'), 0),
  coalesce(sum(calls) FILTER (WHERE funcname = 'heartbeat'), 0),
  (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database())
FROM pg_stat_user_functions
WHERE schemaname = 'watchbill'
"""

app = App(name="bench")  # the worker process imports it; DATABASE_URL says where


@app.task(type="hold", queue=QUEUE, timeout=None)
async def hold() -> None:
    await asyncio.Event().wait()


class Cost(NamedTuple):
    """What a worker did, per minute."""

    claims: float
    heartbeats: float
    transactions: float


@contextmanager
def worker(url: str, variables: Mapping[str, str]) -> Iterator[None]:
    command = [sys.executable, "-m", "watchbill.compat.jobforge", "benchmarks.worker_bench:app"]
    process = subprocess.Popen(command, env={**os.environ, **variables, "DATABASE_URL": url})
    try:
        yield
    finally:
        process.terminate()  # waits for running jobs; a second signal does not
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.wait()


def wait_until(connection: Connection, query: str) -> None:
    end = time.monotonic() + LONGEST_START_SECONDS
    while connection.execute(query.encode()).fetchone() != (True,):
        if time.monotonic() > end:
            raise TimeoutError(query)
        time.sleep(0.1)


def measure(url: str, address: str, variables: Mapping[str, str], jobs: int, seconds: float) -> Cost:
    """Runs a worker at `address`, lets it start so many jobs and rest, and counts what it does in so many seconds."""
    with Connection.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT watchbill.enqueue('hold', '{}', queue => 'jobforge') FROM generate_series(1, %s)", (jobs,)
        )
        with worker(address, {"WATCHBILL_CONCURRENCY": str(max(1, jobs)), **variables}):
            wait_until(connection, "SELECT count(*) = 1 FROM watchbill.nodes WHERE state = 'active'")
            wait_until(connection, f"SELECT count(*) = {jobs} FROM watchbill.running_job")
            time.sleep(REST_SECONDS)
            before = read_counts(connection)
            time.sleep(seconds)
            after = read_counts(connection)
    return Cost(*(60 * (late - early) / seconds for early, late in zip(before, after, strict=True)))


def read_counts(connection: Connection) -> list[float]:
    (row,) = connection.execute(_COUNTS.encode()).fetchall()
    return [float(each) for each in row]


def measure_idle(server: Server, template: str, seconds: float) -> None:
    print(f"{'address':9} {'first, longest, multiplier':32} {'claims/min':>10} {'transactions/min':>17}")
    with run_pooler(server) as pooler:
        for variables in POLLING:
            for kind, place in (("direct", server.url), ("pooler", pooler.url)):
                database = server.create_database(template)
                cost = measure(server.url(database), place(database), variables, 0, seconds)
                shown = ", ".join(variables.values()) or "as Watchbill's settings say"
                print(f"{kind:9} {shown:32} {cost.claims:10.1f} {cost.transactions:17.1f}", flush=True)


def measure_heartbeats(server: Server, template: str, jobs: int, seconds: float) -> None:
    print(f"{'interval':>9} {'heartbeats/min':>15} {'expected by the runbook':>24} {'transactions/min':>17}")
    for interval in BEATS_MS:
        url = server.url(server.create_database(template))
        cost = measure(url, url, {"HEARTBEAT_INTERVAL_MS": str(interval)}, jobs, seconds)
        expected = jobs * 60_000 / interval
        print(f"{interval:6} ms {cost.heartbeats:15.1f} {expected:24.1f} {cost.transactions:17.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("idle", "heartbeats"))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=100, help="how many jobs run while heartbeats are counted")
    options = parser.parse_args()
    server = Server.start(find_servers()[0])
    try:
        template = server.create_database()
        install(server.url(template))
        for statement in ("ALTER SYSTEM SET track_functions = 'all'", "SELECT pg_reload_conf()"):
            server.execute(sql.Composed([sql.SQL(statement)]))
        if options.what == "idle":
            measure_idle(server, template, options.seconds)
        else:
            measure_heartbeats(server, template, options.jobs, options.seconds)
    finally:
        server.stop()


if __name__ == "__main__":
    main()

"""What it costs that jobs run on the owner of their key: `python -m benchmarks.routing_bench`.

Three worker processes with default settings drain 100,000 jobs that do nothing. Plain: from a plain queue. Routed: of
20,000 keys, in a group of 10,000 tokens, which the workers have divided before. Both take turns, each on a database of
its own, with the server that the tests use. The clock starts when the queue is resumed.

Each line shows the rate by the clock, and the jobs per second of processor time of workers and server. The second one
counts on a machine that does other things as well.

`--idle 30` measures instead what three idle members of such a group use, beside three idle workers without a group.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.servers import Server, find_servers

from watchbill import App, Connection
from watchbill.store.install import install

GROUP, TOKENS, KEYS = "production", 10_000, 20_000
WORKERS = 3
KINDS = ("plain", "routed")  # also the names of their queues and tasks
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
LONGEST_SECONDS = 600


class Drained(NamedTuple):
    per_second: float
    per_processor_second: float


def make_app(url: str, kind: str, name: str | None = None) -> App:
    app = App(url, node_name=name)
    if kind == "plain":

        @app.task(type="plain", queue="plain")
        async def plain(key: int) -> None: ...

    else:
        app.cluster.group(GROUP, tokens=TOKENS)

        @app.task(type="routed", queue="routed", route_by="{key}", group=GROUP)
        async def routed(key: int) -> None: ...

    return app


def work(url: str, kind: str, name: str) -> None:
    with make_app(url, kind, name).node():
        threading.Event().wait()


@contextmanager
def workers(url: str, kind: str) -> Iterator[list[int]]:
    """Three of them, when they have registered and own their tokens."""
    command = [sys.executable, "-m", "benchmarks.routing_bench", "--work"]
    started = [subprocess.Popen([*command, url, kind, f"worker-{number}"]) for number in range(WORKERS)]
    try:
        with Connection.connect(url, autocommit=True) as connection:
            wait_until(connection, "SELECT count(*) = 3 FROM watchbill.nodes WHERE state = 'active'")
            if kind == "routed":
                query = "SELECT count(*) = 3 AND bool_and(tokens > 3000) FROM watchbill.token_owners('production')"
                wait_until(connection, query)
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()


def wait_until(connection: Connection, query: str) -> None:
    end = time.monotonic() + LONGEST_SECONDS
    while connection.execute(query.encode()).fetchone() != (True,):
        if time.monotonic() > end:
            raise TimeoutError(query)
        time.sleep(0.02)


def drain(url: str, kind: str, jobs: int) -> Drained:
    with Connection.connect(url, autocommit=True) as connection:
        connection.execute("SELECT watchbill.pause(queue => %s)", (kind,))
        with workers(url, kind) as pids:
            app = make_app(url, kind)
            task = app.tasks[kind]
            for first in range(0, jobs, 10_000):
                app.enqueue_many([task.bind(number % KEYS) for number in range(first, min(first + 10_000, jobs))])
            app.close()
            connection.execute("VACUUM ANALYZE watchbill.jobs")
            postmaster = find_postmaster(connection)
            used, began = processor_seconds(postmaster, pids), time.perf_counter()
            connection.execute("SELECT watchbill.resume(queue => %s)", (kind,))
            wait_until(connection, "SELECT NOT EXISTS (SELECT FROM watchbill.jobs)")
            took = time.perf_counter() - began
            used = processor_seconds(postmaster, pids) - used
    return Drained(jobs / took, jobs / used)


def idle(url: str, kind: str, seconds: float) -> float:
    """The processor time of each worker and its share of the server, in percent of a core."""
    with Connection.connect(url, autocommit=True) as connection, workers(url, kind) as pids:
        postmaster = find_postmaster(connection)
        time.sleep(5)  # until they have come to rest
        used = processor_seconds(postmaster, pids)
        time.sleep(seconds)
        used = processor_seconds(postmaster, pids) - used
    return 100 * used / seconds / WORKERS


def find_postmaster(connection: Connection) -> int:
    query = "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int"
    ((pid,),) = connection.execute(query).fetchall()
    return int(pid)


def processor_seconds(postmaster: int, pids: list[int]) -> float:
    """Of these workers, and of the server with its sessions, also those that have ended."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, fields = int(stat.parent.name), stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        user, system, children_user, children_system = map(int, fields[11:15])
        if pid == postmaster:
            ticks += user + system + children_user + children_system
        elif pid in pids or int(fields[1]) == postmaster:
            ticks += user + system
    return ticks / TICKS_PER_SECOND


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--idle", type=float, default=0, metavar="SECONDS")
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(*options.work)
        return
    server = Server.start(find_servers()[0])
    try:
        template = server.create_database()
        install(server.url(template))
        if options.idle:
            for kind in KINDS:
                used = idle(server.url(server.create_database(template)), kind, options.idle)
                print(f"{kind}: {used:.2f} % of a core per node")
            return
        by_clock, by_processor = [], []
        for _ in range(options.repeat):
            plain, routed = [drain(server.url(server.create_database(template)), kind, options.jobs) for kind in KINDS]
            by_clock.append(routed.per_second / plain.per_second)
            by_processor.append(routed.per_processor_second / plain.per_processor_second)
            print(
                f"plain {plain.per_second:7,.0f}/s ({plain.per_processor_second:,.0f} per processor second)   "
                f"routed {routed.per_second:7,.0f}/s ({routed.per_processor_second:,.0f})   "
                f"ratio {by_clock[-1]:.2f} ({by_processor[-1]:.2f})",
                flush=True,
            )
        clock, processor = statistics.median(by_clock), statistics.median(by_processor)
        print(f"ratio, median of {options.repeat}: {clock:.2f} by the clock, {processor:.2f} by processor time")
    finally:
        server.stop()


if __name__ == "__main__":
    main()

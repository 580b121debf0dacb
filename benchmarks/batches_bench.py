"""What batches save: `python -m benchmarks.batches_bench`.

One worker process with default settings drains 100,000 jobs that do nothing. Plain: one call of the handler per job.
Batched: up to 200 jobs per call. Both take turns, each on a database of its own, with the server that the tests use.
The clock starts when the queue is resumed.

Each line shows the rate by the clock, and the jobs per second of processor time of worker and server. The second one
counts on a machine that does other things as well. The calls are those of the batched handler, which answers each job
with the size of its batch.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tests.servers import Server, find_servers

from benchmarks.routing_bench import find_postmaster, processor_seconds, wait_until
from watchbill import App, Batch, Connection
from watchbill.store.install import install

SIZE = 200
KINDS = ("plain", "batched")  # also the names of their queues and tasks


class Drained(NamedTuple):
    per_second: float
    per_processor_second: float
    calls: int


def make_app(url: str, kind: str) -> App:
    app = App(url)
    if kind == "plain":

        @app.task(type="plain", queue="plain")
        async def plain(item: int) -> int:
            return 1

    else:

        @app.task(type="batched", queue="batched", batch=Batch(size=SIZE, wait="500ms"))
        async def batched(items: list[int]) -> list[int]:
            return [len(items)] * len(items)

    return app


def work(url: str, kind: str) -> None:
    with make_app(url, kind).node():
        threading.Event().wait()


@contextmanager
def a_worker(connection: Connection, url: str, kind: str) -> Iterator[int]:
    started = subprocess.Popen([sys.executable, "-m", "benchmarks.batches_bench", "--work", url, kind])
    try:
        wait_until(connection, "SELECT count(*) = 1 FROM watchbill.nodes WHERE state = 'active'")
        yield started.pid
    finally:
        started.kill()
        started.wait()


def drain(url: str, kind: str, jobs: int) -> Drained:
    with Connection.connect(url, autocommit=True) as connection:
        connection.execute("SELECT watchbill.pause(queue => %s)", (kind,))
        with a_worker(connection, url, kind) as pid:
            app = make_app(url, kind)
            task = app.tasks[kind]
            for first in range(0, jobs, 10_000):
                app.enqueue_many([task.bind(number) for number in range(first, min(first + 10_000, jobs))])
            app.close()
            connection.execute("VACUUM ANALYZE watchbill.jobs")
            postmaster = find_postmaster(connection)
            used, began = processor_seconds(postmaster, [pid]), time.perf_counter()
            connection.execute("SELECT watchbill.resume(queue => %s)", (kind,))
            wait_until(connection, "SELECT NOT EXISTS (SELECT FROM watchbill.jobs)")
            took = time.perf_counter() - began
            used = processor_seconds(postmaster, [pid]) - used
        query = "SELECT round(sum(1.0 / result::text::int)) FROM watchbill.finished_jobs WHERE state = 'succeeded'"
        ((calls,),) = connection.execute(query).fetchall()
    return Drained(jobs / took, jobs / used, int(calls))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(*options.work)
        return
    server = Server.start(find_servers()[0])
    try:
        template = server.create_database()
        install(server.url(template))
        by_clock, by_processor = [], []
        for _ in range(options.repeat):
            plain, batched = [drain(server.url(server.create_database(template)), kind, options.jobs) for kind in KINDS]
            by_clock.append(batched.per_second / plain.per_second)
            by_processor.append(batched.per_processor_second / plain.per_processor_second)
            print(
                f"plain {plain.per_second:7,.0f}/s ({plain.per_processor_second:,.0f} per processor second)   "
                f"batched {batched.per_second:7,.0f}/s ({batched.per_processor_second:,.0f}), {batched.calls:,} calls  "
                f"ratio {by_clock[-1]:.2f} ({by_processor[-1]:.2f})",
                flush=True,
            )
        clock, processor = statistics.median(by_clock), statistics.median(by_processor)
        print(f"ratio, median of {options.repeat}: {clock:.2f} by the clock, {processor:.2f} by processor time")
    finally:
        server.stop()


if __name__ == "__main__":
    main()

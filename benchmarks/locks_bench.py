"""How often a second one caller can take and release a free lock: `python -m benchmarks.locks_bench`.

Ours is `with app.lock("close")`: two statements, each a durable commit. Beside it stands redis-py's lock, on a redis
that writes to disk before each reply (`appendfsync always`), so that both keep a lock over a crash of the server. They
take turns on one machine. The ratio says more than the rates. Each line also shows the processor time of a lock, of
caller and server together: on a machine that does other things as well, both wait for a core several times per lock,
and ours has more processes that wait. It needs what `benchmarks/install.sh` installs, and redis-server.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import psycopg

from benchmarks.places import ADAPTERS, ADMIN_DSN, DATABASE, DSN, PEERS_PYTHON, REDIS_PORT
from benchmarks.routing_bench import find_postmaster, processor_seconds
from benchmarks.servers import start_postgres
from watchbill import App, Connection
from watchbill.store.install import install


class Locked(NamedTuple):
    """How many locks a second, and the processor seconds of each."""

    per_second: float
    processor: float

    def __str__(self) -> str:
        return f"{self.per_second:7,.0f}/s ({1e6 * self.processor:4.0f} us)"


class Redis(NamedTuple):
    url: str
    pid: int


@contextmanager
def durable_redis() -> Iterator[Redis]:
    """One of our own, beside the one of the other benchmarks, which appends once a second."""
    port = str(REDIS_PORT + 1)
    with tempfile.TemporaryDirectory() as directory:
        options = ["--bind", "127.0.0.1", "--port", port, "--dir", directory, "--save", ""]
        server = subprocess.Popen(
            ["redis-server", *options, "--appendonly", "yes", "--appendfsync", "always"], stdout=subprocess.DEVNULL
        )
        try:
            while subprocess.run(["redis-cli", "-p", port, "ping"], check=False, capture_output=True).returncode:
                time.sleep(0.1)
            yield Redis(f"redis://127.0.0.1:{port}/0", server.pid)
        finally:
            server.terminate()
            server.wait()


def measure_ours(app: App, postmaster: int, seconds: float) -> Locked:
    def used() -> float:
        return time.process_time() + processor_seconds(postmaster, [])

    count, began, before = 0, time.perf_counter(), used()
    while (took := time.perf_counter() - began) < seconds:
        with app.lock("close", ttl=30):
            count += 1
    return Locked(count / took, (used() - before) / count)


def measure_redis(redis: Redis, seconds: float) -> Locked:
    """The caller's share has the start of Python in it, which a second call without locks measures."""

    def used(seconds: float) -> tuple[float, float]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN), processor_seconds(0, [redis.pid])
        command = [str(PEERS_PYTHON), str(ADAPTERS / "redis_lock.py"), redis.url, str(seconds)]
        rate = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        after = resource.getrusage(resource.RUSAGE_CHILDREN), processor_seconds(0, [redis.pid])
        caller = after[0].ru_utime + after[0].ru_stime - before[0].ru_utime - before[0].ru_stime
        return rate, caller + after[1] - before[1]

    _, start = used(0.0001)
    rate, processor = used(seconds)
    return Locked(rate, (processor - start) / (rate * seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    if not shutil.which("redis-server") or not PEERS_PYTHON.exists():
        raise SystemExit("run benchmarks/install.sh, and install redis-server")
    stop = start_postgres()
    try:
        with psycopg.connect(ADMIN_DSN, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)".encode())
            connection.execute(f"CREATE DATABASE {DATABASE}".encode())
        install(DSN)
        app, by_clock, by_processor = App(DSN), list[float](), list[float]()
        with Connection.connect(DSN) as connection:
            postmaster = find_postmaster(connection)
        measure_ours(app, postmaster, 0.5)
        with durable_redis() as redis:
            for _ in range(options.repeat):
                ours, theirs = measure_ours(app, postmaster, options.seconds), measure_redis(redis, options.seconds)
                by_clock.append(ours.per_second / theirs.per_second)
                by_processor.append(theirs.processor / ours.processor)
                print(f"watchbill {ours}   redis-py {theirs}   ratio {by_clock[-1]:.2f} ({by_processor[-1]:.2f})")
        clock, processor = statistics.median(by_clock), statistics.median(by_processor)
        print(f"ratio, median of {options.repeat}: {clock:.2f} by the clock, {processor:.2f} by processor time")
        app.close()
    finally:
        if stop is not None:
            stop()


if __name__ == "__main__":
    main()

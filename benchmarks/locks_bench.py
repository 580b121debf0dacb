"""How often a second one caller can take and release a free lock: `python -m benchmarks.locks_bench`.

Ours is `with app.lock("close")`: two statements, each a durable commit. Beside it stands redis-py's lock, on a redis
that writes to disk before each reply (`appendfsync always`), so that both keep a lock over a crash of the server. They
take turns on one machine. The ratio says more than the rates. It needs what `benchmarks/install.sh` installs, and
redis-server.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from benchmarks.places import ADAPTERS, ADMIN_DSN, DATABASE, DSN, PEERS_PYTHON, REDIS_PORT
from benchmarks.servers import start_postgres
from watchbill import App
from watchbill.store.install import install


@contextmanager
def durable_redis() -> Iterator[str]:
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
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.terminate()
            server.wait()


def measure_ours(app: App, seconds: float) -> float:
    count, began = 0, time.perf_counter()
    while (took := time.perf_counter() - began) < seconds:
        with app.lock("close", ttl=30):
            count += 1
    return count / took


def measure_redis(url: str, seconds: float) -> float:
    command = [str(PEERS_PYTHON), str(ADAPTERS / "redis_lock.py"), url, str(seconds)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


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
        app, ratios = App(DSN), list[float]()
        measure_ours(app, 0.5)
        with durable_redis() as url:
            for _ in range(options.repeat):
                ours, theirs = measure_ours(app, options.seconds), measure_redis(url, options.seconds)
                ratios.append(ours / theirs)
                print(f"watchbill {ours:7,.0f}/s   redis-py {theirs:7,.0f}/s   ratio {ratios[-1]:.2f}")
        print(f"ratio, median of {options.repeat}: {statistics.median(ratios):.2f}")
        app.close()
    finally:
        if stop is not None:
            stop()


if __name__ == "__main__":
    main()

"""What the listeners of several worker processes cost: `python -m benchmarks.listeners_bench`.

Runs `watchbill worker --processes 8` on the server that the tests use, and measures the processor time of its processes
and of its sessions: idle, and with 200 jobs that are enqueued one by one at 20 per second. Decision 15 has the figures,
beside those of a listener that the processes shared, of the commit before.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers import Server, find_servers

from watchbill import App, Connection
from watchbill.store.install import install

TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")
LONGEST_START_SECONDS = 60
REST_SECONDS = 5  # after the start of the processes
JOBS, PACE_SECONDS = 200, 0.05
SESSIONS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

app = App(name="bench")  # the worker processes import it; WATCHBILL_DATABASE_URL says where


@app.task(type="noop")
async def noop() -> None:
    pass


def read_cpu_ms(pids: Iterable[int]) -> float:
    """Processor time of these processes so far. One that has ended counts no more."""
    total = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total * TICK_MS


def find_group(leader: int) -> list[int]:
    """The processes of a process group."""
    return [
        int(place.name)
        for place in Path("/proc").iterdir()
        if place.name.isdigit() and (place / "stat").exists() and os.getpgid(int(place.name)) == leader
    ]


@contextmanager
def run_workers(url: str, processes: int) -> Iterator[int]:
    """Yields the id of the process group."""
    command = [sys.executable, "-m", "watchbill.cli", "worker", "benchmarks.listeners_bench:app"]
    environment = {**os.environ, "WATCHBILL_DATABASE_URL": url}
    process = subprocess.Popen(
        [*command, "--processes", str(processes)],
        env=environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def measure(connection: Connection, group: int, what: str, act: Callable[[], None]) -> None:
    sessions = [pid for (pid,) in connection.execute(SESSIONS.encode())]
    workers = find_group(group)
    before = read_cpu_ms(workers), read_cpu_ms(sessions)
    act()
    own, server = read_cpu_ms(workers) - before[0], read_cpu_ms(sessions) - before[1]
    count = connection.execute(f"SELECT count(*) FROM ({SESSIONS}) s".encode()).fetchone()
    assert count is not None
    print(f"{what:16} {own:10.0f} ms {server:10.0f} ms {count[0]:12}", flush=True)


def enqueue_at_pace(url: str) -> None:
    producer = App(url, name="producer")
    for _ in range(JOBS):
        producer.enqueue("noop")
        time.sleep(PACE_SECONDS)
    producer.close()
    time.sleep(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20, help="how long the idle workers are measured")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    server = Server.start(find_servers()[0])
    try:
        url = server.url(server.create_database())
        install(url)
        with Connection.connect(url, autocommit=True) as connection, run_workers(url, options.processes) as group:
            end = time.monotonic() + LONGEST_START_SECONDS
            active = "SELECT count(*) FROM watchbill.nodes WHERE state = 'active'"
            while connection.execute(active.encode()).fetchone() != (options.processes,):
                if time.monotonic() > end:
                    raise TimeoutError(active)
                time.sleep(0.1)
            time.sleep(REST_SECONDS)
            print(f"{'':16} {'processes':>13} {'sessions':>13} {'connections':>12}")
            for _ in range(options.rounds):
                measure(connection, group, f"idle {options.seconds:g} s", lambda: time.sleep(options.seconds))
                measure(connection, group, f"{JOBS} jobs", lambda: enqueue_at_pace(url))
    finally:
        server.stop()


if __name__ == "__main__":
    main()

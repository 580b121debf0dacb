"""How fast schedules become jobs: `python -m benchmarks.schedules_bench`.

Four figures, each measured on a database of its own, with the server that the tests use:

- bulk: jobs enqueued in batches of 1,000 by COPY, the rate that the others are compared with
- tick: 100,000 schedules due in the same second, by 1 and by 4 schedulers, each in a process of its own
- large: one tick with 10 due among 1,000,000 schedules
- lag: from the slot to the start of the handler, one schedule each second on an idle node

Rates by the clock are those of this machine as it is now; beside them stands the processor time of the server's
process, which says the same on a busy one (Linux only).
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from tests.servers import Server, find_servers

from watchbill.scheduler.scheduler import BATCH as AT_ONCE
from watchbill.store.install import install

BATCH = 1000
COPY = "COPY incoming (id, type, payload, queue, priority, tenant, max_attempts, version) FROM STDIN"
PATTERNS = [f"{minute} {hour} * * *" for hour in range(24) for minute in range(0, 60, 6)]  # 240 different ones
ADD = """
    INSERT INTO watchbill.schedules (name, pattern, tz, type, payload, created_at)
    SELECT 's' || n, (%(patterns)s::text[])[1 + n %% cardinality(%(patterns)s::text[])], (ARRAY['UTC', 'Europe/Paris', 'Asia/Tokyo'])[1 + n %% 3],
      'task', jsonb_build_object('n', n), %(created)s
    FROM generate_series(%(first)s::int, %(last)s::int) n"""  # noqa: E501


class Processor:
    """Seconds that the server has spent on this connection."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._stat = Path(f"/proc/{connection.info.backend_pid}/stat")
        self._began = self._read()

    def spent(self) -> float:
        return self._read() - self._began

    def _read(self) -> float:
        fields = self._stat.read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def connect(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(url, autocommit=True)


@contextmanager
def database(server: Server) -> Iterator[str]:
    name = server.create_database()
    install(server.url(name))
    yield server.url(name)
    server.drop_database(name)


def add_schedules(url: str, count: int) -> None:
    with connect(url) as connection:
        for first in range(1, count + 1, 50_000):
            connection.execute(
                ADD,
                {
                    "patterns": PATTERNS,
                    "created": datetime.now(UTC),
                    "first": first,
                    "last": min(first + 49_999, count),
                },
            )
        connection.execute("VACUUM ANALYZE")


def bulk_rate(url: str, count: int) -> tuple[float, float]:
    """The fastest way there is: rows copied into a temporary table, ready-made, then `enqueue_from`."""
    batches = [
        "".join(f'{uuid7(n)}\ttask\t{{"n": {n}}}\tdefault\t0\tdefault\t5\t1\n' for n in range(first, first + BATCH))
        for first in range(0, count, BATCH)
    ]
    with connect(url) as connection:
        began, processor = time.perf_counter(), Processor(connection)
        for batch in batches:
            with connection.transaction(), connection.cursor() as cursor:
                cursor.execute("CREATE TEMP TABLE incoming OF watchbill.new_job ON COMMIT DROP")
                with cursor.copy(COPY) as copy:
                    copy.write(batch)
                cursor.execute("SELECT * FROM watchbill.enqueue_from('incoming')")
        return count / (time.perf_counter() - began), processor.spent() / count


def uuid7(n: int) -> UUID:
    return UUID(int=(int(time.time() * 1000) << 80) | (7 << 76) | (2 << 62) | n)


def tick_until_done(url: str, barrier: Any) -> None:
    with connect(url) as connection:
        connection.execute("SELECT 1")
        barrier.wait()
        while True:
            row = connection.execute("SELECT fired FROM watchbill.tick(%s)", (AT_ONCE,)).fetchone()
            if row == (0,):
                return


def make_all_due(url: str) -> None:
    """All timers are set to one instant, as if all patterns met there."""
    with connect(url) as connection:
        connection.execute("UPDATE watchbill.timers SET next_run = date_trunc('second', now())")
        connection.execute("VACUUM ANALYZE watchbill.timers")


def tick_cost(url: str, ticks: int) -> float:
    """Seconds of the server's processor per job."""
    make_all_due(url)
    with connect(url) as connection:
        connection.execute("SELECT watchbill.tick(%s)", (AT_ONCE,))
        processor = Processor(connection)
        for _ in range(ticks):
            connection.execute("SELECT watchbill.tick(%s)", (AT_ONCE,))
        return processor.spent() / (ticks * AT_ONCE)


def tick_rate(url: str, schedulers: int) -> float:
    make_all_due(url)
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(schedulers + 1)
    processes = [context.Process(target=tick_until_done, args=(url, barrier)) for _ in range(schedulers)]
    for process in processes:
        process.start()
    barrier.wait()
    began = time.perf_counter()
    for process in processes:
        process.join()
    took = time.perf_counter() - began
    with connect(url) as connection:
        row = connection.execute("SELECT count(*), count(DISTINCT schedule_id) FROM watchbill.jobs").fetchone()
        assert row is not None
        assert row[0] == row[1], "a slot was made twice"
    return float(row[0]) / took


def large_tick(url: str) -> None:
    """50 ticks; the first one has to plan and compile everything."""
    with connect(url) as connection:
        times, spent = [], []
        for _ in range(50):
            connection.execute("""
                UPDATE watchbill.timers SET next_run = date_trunc('second', now()), last_slot = NULL
                WHERE schedule_id IN (SELECT 1 + (random() * 900000)::int FROM generate_series(1, 10))""")
            began, processor = time.perf_counter(), Processor(connection)
            connection.execute("SELECT * FROM watchbill.tick()")
            times.append((time.perf_counter() - began) * 1000)
            spent.append(processor.spent() * 1000)
        print(
            f"  ticks with 10 due: median {statistics.median(times):.1f} ms, slowest {max(times):.1f} ms, "
            f"processor {statistics.mean(spent):.1f} ms (goal: 10)"
        )


async def lags(url: str, seconds: int) -> list[float]:
    from watchbill import App, current_job

    app, found = App(url), []

    @app.task(type="lag")
    async def lag() -> None:
        slot = datetime.fromisoformat(current_job().meta["slot"])
        found.append((datetime.now(UTC) - slot).total_seconds() * 1000)

    async with app.node():
        with connect(url) as connection:
            connection.execute("SELECT watchbill.add_schedule('lag', '* * * * * *', 'lag')")
        await asyncio.sleep(seconds)
    await app.aclose()
    return sorted(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--due", type=int, default=100_000)
    parser.add_argument("--table", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("only", nargs="*", help="bulk and tick, large, lag")
    chosen = parser.parse_args()
    server = Server.start(find_servers()[0])
    steps: dict[str, Callable[[], None]] = {
        "tick": lambda: measure_ticks(server, chosen.due),
        "large": lambda: measure_large(server, chosen.table),
        "lag": lambda: measure_lag(server, chosen.seconds),
    }
    try:
        for name, step in steps.items():
            if not chosen.only or name in chosen.only:
                step()
    finally:
        server.stop()


def measure_ticks(server: Server, due: int) -> None:
    with database(server) as url:
        bulk, cost = bulk_rate(url, due)
    print(f"bulk: {bulk:,.0f} jobs/s by one client in batches of {BATCH}, processor {cost * 1e6:.1f} us a job")
    for schedulers in (1, 4):
        with database(server) as url:
            add_schedules(url, due)
            rate = tick_rate(url, schedulers)
        print(f"tick: {rate:,.0f} jobs/s by {schedulers} scheduler(s): {rate / bulk:.2f} of the bulk rate (goal: 0.25)")
    with database(server) as url:
        add_schedules(url, min(due, 20_000))
        own = tick_cost(url, min(due, 20_000) // AT_ONCE - 1)
    print(f"tick: processor {own * 1e6:.1f} us a job, by which its rate is {cost / own:.2f} of the bulk rate")


def measure_large(server: Server, table: int) -> None:
    with database(server) as url:
        began = time.perf_counter()
        add_schedules(url, table)
        print(f"large: {table:,} schedules in the table, written at {table / (time.perf_counter() - began):,.0f}/s")
        large_tick(url)


def measure_lag(server: Server, seconds: int) -> None:
    with database(server) as url:
        found = asyncio.run(lags(url, seconds))
    p99 = found[min(len(found) - 1, int(len(found) * 0.99))]
    print(f"lag: {len(found)} slots, median {statistics.median(found):.1f} ms, p99 {p99:.1f} ms (goal: 50)")


if __name__ == "__main__":
    main()

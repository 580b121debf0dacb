"""What the facades cost: `python -m benchmarks.facades_bench`.

On the durable server of the benchmarks, each figure beside its counterpart, in alternating rounds:

- at once: a PgJobStore worker claims 100 jobs and awaits all their completions together; beside it a straightforward
  implementation of the README: one table, SKIP LOCKED, one UPDATE per completion over ten connections
- in turn: the same, each completion awaited before the next
- run_job: SchedulerPlugin.run_job beside `app.schedules.arun_now(...)` of a plain task and its result, on one node
- enqueue: `jobforge_enqueue_job` beside `watchbill.enqueue`, each in a transaction of its own
- execute: `execute_due_jobs` of jcron beside `watchbill.execute_due`, with 100 commands due

The rates are those of this machine as it is now; the ratio of neighbouring runs says more than either. `--cpu` counts
the processor time of client and server in place of the clock: use it on a machine that is busy with other things.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
from psycopg_pool import AsyncConnectionPool

from benchmarks.database import make_anew
from benchmarks.places import DSN
from benchmarks.servers import process_ids, start_postgres
from watchbill import App
from watchbill.compat.s3db import SchedulerPlugin
from watchbill.compat.seesaw import PgJobStore
from watchbill.store.facades import Facade, install_facade
from watchbill.store.install import install

BATCH = 100
_TABLE = """
CREATE TABLE plain_jobs (
  id uuid PRIMARY KEY, job_type text NOT NULL, payload jsonb NOT NULL, version int NOT NULL DEFAULT 1,
  status text NOT NULL DEFAULT 'pending', attempt int NOT NULL DEFAULT 1, max_retries int NOT NULL DEFAULT 3,
  priority int NOT NULL DEFAULT 0, run_at timestamptz NOT NULL DEFAULT now(), worker_id text,
  lease_expires_at timestamptz, error_message text, error_kind text,
  created_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz NOT NULL DEFAULT now());
CREATE INDEX ON plain_jobs (priority, run_at) WHERE status = 'pending';
CREATE INDEX ON plain_jobs (lease_expires_at) WHERE status = 'running';
"""
_FILL_PLAIN = """
INSERT INTO plain_jobs (id, job_type, payload)
SELECT gen_random_uuid(), 't', '{"n": 1}' FROM generate_series(1, %s)"""
_FILL_OURS = """
SELECT count(*) FROM watchbill.enqueue_many((
  SELECT jsonb_agg('{"type": "t", "queue": "bench", "payload": {"n": 1}}'::jsonb) FROM generate_series(1, %s)))"""
_CLAIM = """
UPDATE plain_jobs
SET status = 'running', worker_id = %s, lease_expires_at = now() + interval '60 s', updated_at = now()
WHERE id IN (
  SELECT id FROM plain_jobs WHERE status = 'pending' AND run_at <= now()
  ORDER BY priority, run_at LIMIT %s FOR UPDATE SKIP LOCKED)
RETURNING id"""
_COMPLETE = "UPDATE plain_jobs SET status = 'succeeded', lease_expires_at = NULL, updated_at = now() WHERE id = %s"
_ENQUEUE_OURS = "SELECT jobforge_enqueue_job('t', 'bench', '{\"n\": 1}')"
_ENQUEUE = "SELECT * FROM watchbill.enqueue('bench', '{\"n\": 1}')"
_ADD_COMMANDS = "SELECT add_job('job ' || n, '0 0 9 * * *', p_command => 'SELECT 1') FROM generate_series(1, 100) n"
_MAKE_DUE = "UPDATE watchbill.timers SET next_run = clock_timestamp() - interval '1 second'"
_EXECUTE_OURS, _EXECUTE = "SELECT * FROM execute_due_jobs()", "SELECT * FROM watchbill.execute_due()"

Store = Any  # PgJobStore or PlainStore


class PlainStore:
    """The README as most would write it."""

    def __init__(self, pool: AsyncConnectionPool[Any]) -> None:
        self._pool = pool

    async def claim_ready(self, worker_id: str, limit: int) -> Sequence[tuple[UUID, ...]]:
        async with self._pool.connection() as connection:
            rows: list[tuple[UUID, ...]] = await (await connection.execute(_CLAIM, (worker_id, limit))).fetchall()
            return rows

    async def mark_succeeded(self, id: UUID) -> None:
        async with self._pool.connection() as connection:
            await connection.execute(_COMPLETE, (id,))


async def drain(store: Store, *, at_once: bool) -> int:
    """Works until the queue is empty, and returns how many jobs there were."""
    done = 0
    while jobs := await store.claim_ready("worker", BATCH):
        if at_once:
            await asyncio.gather(*(store.mark_succeeded(job[0]) for job in jobs))
        else:
            for job in jobs:
                await store.mark_succeeded(job[0])
        done += len(jobs)
    return done


class Meter:
    """Things per second of the clock, or of the processor time of this process and the server."""

    def __init__(self, *, cpu: bool) -> None:
        self._cpu = cpu

    async def rate(self, work: Callable[[], Awaitable[int]]) -> float:
        began = self._now()
        done = await work()
        return done / (self._now() - began)

    def _now(self) -> float:
        return time.process_time() + _server_seconds() if self._cpu else time.perf_counter()


def _server_seconds() -> float:
    """The processor time of every process of the server that lives now. (Pools keep their connections open.)"""
    servers, total = set(process_ids()), 0.0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
            if int(text[text.rindex(")") + 2 :].split()[1]) in servers:
                total += int((stat.parent / "schedstat").read_text().split()[0]) / 1e9
        except OSError:  # it has ended
            continue
    return total


async def compare_stores(url: str, count: int, meter: Meter, *, at_once: bool) -> tuple[float, float]:
    async with AsyncConnectionPool(url, min_size=10, max_size=10, kwargs={"autocommit": True}, open=False) as pool:
        async with pool.connection() as connection:
            await connection.execute(_FILL_PLAIN, (count,))
            await connection.execute(_FILL_OURS, (count,))
            await connection.execute("ANALYZE")
        ours, plain = PgJobStore(url, queue="bench"), PlainStore(pool)
        await ours.claim_ready("worker", 0)  # registers the worker and opens connections, as the pool has done
        rates = (
            await meter.rate(lambda: drain(ours, at_once=at_once)),
            await meter.rate(lambda: drain(plain, at_once=at_once)),
        )
        await ours.close()
    return rates


async def compare_runs(url: str, count: int, meter: Meter) -> tuple[float, float]:
    app = App(url, name="bench")

    async def nothing() -> None: ...

    plugin = SchedulerPlugin(app=app, jobs={"job": {"schedule": None, "action": nothing}})
    app.declare_schedule("native", None, task=app.task(type="native", queue=plugin.queue)(nothing))

    async def ours() -> int:
        for _ in range(count):
            await plugin.run_job("job")
        return count

    async def native() -> int:
        for _ in range(count):
            await (await app.schedules.arun_now("native", overlap="skip")).aresult()
        return count

    async with plugin:
        await plugin.run_job("job")
        rates = await meter.rate(ours), await meter.rate(native)
    await app.aclose()
    return rates


async def compare_statements(
    url: str, ours: str, native: str, count: int, meter: Meter, before: str = "SELECT 1"
) -> tuple[float, float]:
    """Rows per second of two statements, each repeated; `before` runs once before each of them."""
    with psycopg.connect(url, autocommit=True) as connection:

        async def repeat(statement: str) -> int:
            return sum(len(connection.execute(statement.encode()).fetchall()) for _ in range(count))

        for statement in (ours, native):  # compiles the functions
            connection.execute(before.encode())
            await repeat(statement)
        connection.execute(before.encode())
        rate = await meter.rate(lambda: repeat(ours))
        connection.execute(before.encode())
        return rate, await meter.rate(lambda: repeat(native))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    stop = start_postgres()
    try:
        make_anew()
        install(DSN)
        with psycopg.connect(DSN) as connection:
            connection.execute(_TABLE.encode())
        for name in ("jcron", "jobforge"):
            install_facade(DSN, Facade.choose("watchbill", name))
        with psycopg.connect(DSN) as connection:
            connection.execute(_ADD_COMMANDS)
        meter = Meter(cpu=options.cpu)
        measures: dict[str, Callable[[], Any]] = {
            "at once": lambda: compare_stores(DSN, options.jobs, meter, at_once=True),
            "in turn": lambda: compare_stores(DSN, options.jobs, meter, at_once=False),
            "run_job": lambda: compare_runs(DSN, options.runs, meter),
            "enqueue": lambda: compare_statements(DSN, _ENQUEUE_OURS, _ENQUEUE, options.jobs, meter),
            "execute": lambda: compare_statements(DSN, _EXECUTE_OURS, _EXECUTE, 1, meter, _MAKE_DUE),
        }
        for name, measure in measures.items():
            pairs = [asyncio.run(measure()) for _ in range(options.repeat)]
            ratio = statistics.median(ours / other for ours, other in pairs)
            ours, other = (statistics.median(each) for each in zip(*pairs, strict=True))
            print(f"{name}: {ours:8,.0f}/s beside {other:8,.0f}/s, ratio {ratio:.2f}", flush=True)
    finally:
        if stop is not None:
            stop()


if __name__ == "__main__":
    main()

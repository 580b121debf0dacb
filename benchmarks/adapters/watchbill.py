"""Watchbill: a plain `@app.task`, `task.enqueue` and `watchbill worker` with default settings, nothing else."""

from __future__ import annotations

import json
import os
import random
import string
import subprocess
import sys
import time

import psycopg

import watchbill
from benchmarks.adapters import contract
from benchmarks.adapters.contract import DSN, OPTIONS, answer, chunks, hit, key_of, report
from watchbill.model.ids import new_id

app = watchbill.App(DSN)


@app.task(type="noop")
async def noop(number: int) -> None:
    hit(number)


@app.task(type="noop_def")
def noop_def(number: int) -> None:
    hit(number)


@app.task(type="noop_large")
async def noop_large(number: int, text: str) -> None:
    hit(number)


if "keys" in OPTIONS:  # not otherwise: the database would know a limit

    @app.task(type="noop_limited", limits=[watchbill.Limit(1, name="key", by="{key}")])
    async def noop_limited(number: int, key: int) -> None:
        hit(number)


COMMAND = [sys.executable, "-m", "watchbill.cli", "--database-url", DSN]
TASK = noop_def if OPTIONS.get("def") else noop
BY_PRIORITY = [TASK.using(priority=priority) for priority in range(OPTIONS.get("priorities", 1))]
TEXT_SIZE = OPTIONS.get("payload", 0) - len('{"text":"","number":12345}')
NOISE = "".join(random.Random(7).choices(string.ascii_letters + string.digits, k=1_000_000))


def call(number: int) -> watchbill.Call[None]:
    """No two payloads are alike, and none can be compressed."""
    if (key := key_of(number)) is not None:
        return noop_limited.bind(number, key)
    if TEXT_SIZE > 0:
        start = random.randrange(len(NOISE) - TEXT_SIZE)
        return noop_large.bind(number, NOISE[start : start + TEXT_SIZE])
    return BY_PRIORITY[number % len(BY_PRIORITY)].bind(number)


def setup() -> None:
    subprocess.run([*COMMAND, "db", "migrate"], check=True, stdout=subprocess.DEVNULL)


def bulk(n: int) -> None:
    {"sql": bulk_by_function, "copy": bulk_by_copy}.get(OPTIONS.get("bulk", ""), bulk_from_python)(n)


def bulk_from_python(n: int) -> None:
    app.enqueue_many([])  # connects
    call(0)  # loads the validator
    contract.bulk(n, lambda numbers: app.enqueue_many([call(number) for number in numbers]))


def bulk_by_function(n: int) -> None:
    """What another language would send: id, type and payload. The ids are made for these very calls."""
    statement = "SELECT count(*) FROM watchbill.enqueue_many(%s::jsonb, ids_are_new => true)"
    jobs = ([{"id": str(new_id()), "type": "noop", "payload": {"number": i}} for i in numbers] for numbers in chunks(n))
    arrays = [json.dumps(each) for each in jobs]
    with psycopg.connect(DSN, autocommit=True) as connection:
        began = time.perf_counter()
        for array in arrays:
            connection.execute(statement, (array,), prepare=True)
        report(n, time.perf_counter() - began)


def bulk_by_copy(n: int) -> None:
    """Ten thousand rows of id, type and payload a transaction."""
    texts = ["".join(f'{new_id()}\tnoop\t{{"number": {i}}}\n' for i in numbers) for numbers in chunks(n, 10_000)]
    with psycopg.connect(DSN, autocommit=True) as connection:
        began = time.perf_counter()
        for text in texts:
            with connection.transaction(), connection.cursor() as cursor:
                cursor.execute("CREATE TEMP TABLE incoming OF watchbill.new_job ON COMMIT DROP")
                with cursor.copy("COPY incoming (id, type, payload) FROM STDIN") as copy:
                    copy.write(text)
                cursor.execute("SELECT FROM watchbill.enqueue_from('incoming', ids_are_new => true)")
        report(n, time.perf_counter() - began)


def worker() -> None:
    options = [f"--{name}={OPTIONS[name]}" for name in ("queues", "processes") if name in OPTIONS]
    os.execv(sys.executable, [*COMMAND, "worker", "benchmarks.adapters.watchbill:app", *options])


def churn(n: int) -> None:
    """Nothing has to be imitated: a worker works off what is there, and stops."""
    subprocess.run([*COMMAND, "worker", "benchmarks.adapters.watchbill:app", "--once"], check=True)


if __name__ == "__main__":
    answer(
        setup=setup,
        bulk=bulk,
        single=lambda n: contract.single(n, TASK.enqueue),
        latency=lambda n, gap, path: contract.latency(n, gap, path, TASK.enqueue),
        worker=worker,
        churn=churn,
    )

"""Foliot in the harness: a plain `@app.task`, `task.enqueue`, and `foliot worker` with default settings. No other path is measured."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import peerlib
from peerlib import DSN, OPTS, chunks, hit, out, sync_latency, sync_single

import foliot

app = foliot.App(DSN)


@app.task(type="noop")
async def noop(seq: int) -> None:
    hit(seq)


@app.task(type="noop_def")
def noop_def(seq: int) -> None:
    hit(seq)


TASK = noop_def if OPTS.get("def") else noop
PADDING = "x" * OPTS.get("padding", 0)


@app.task(type="noop_padded")
async def noop_padded(seq: int, padding: str) -> None:
    hit(seq)


def call(seq):
    return noop_padded.bind(seq, PADDING) if PADDING else TASK.bind(seq)


def setup():
    from foliot.postgres.migrate import Source, migrate

    migrate(DSN, "foliot", Source.of_package("foliot.store"))


def bulk(n):
    import time

    app.enqueue_many([])
    began = time.perf_counter()
    for numbers in chunks(n, 1000):
        app.enqueue_many([call(i) for i in numbers])
    out(n, time.perf_counter() - began)


def single(n):
    TASK.enqueue(-1)
    sync_single(n, TASK.enqueue)


def latency(n, gap, path):
    sync_latency(n, gap, path, TASK.enqueue)


def worker():
    command = [sys.executable, "-m", "foliot.cli", "--database-url", DSN, "worker", "foliot_peer:app"]
    extra = [f"--processes={OPTS['processes']}"] if "processes" in OPTS else []
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    os.environ["PYTHONPATH"] = os.path.dirname(os.path.abspath(peerlib.__file__))
    os.execv(sys.executable, command + extra)


def churn(n):
    """The row versions that n processed jobs leave behind, made by the same functions that a worker calls."""
    import psycopg

    with psycopg.connect(DSN, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        (epoch,) = connection.execute("SELECT foliot.register('churn')").fetchone()
        for _ in range(0, n, 1000):
            connection.execute(
                "WITH c AS MATERIALIZED (SELECT id, fence FROM foliot.claim(%s, '{default}', 1000)) "
                "SELECT array_agg(id), array_agg(fence) FROM c",
                (epoch,),
            )
            ids, fences = connection.execute(
                "SELECT array_agg(id), array_agg(fence) FROM foliot.jobs WHERE fence <> 0"
            ).fetchone()
            connection.execute("SELECT foliot.settle(%s, %s, %s, closed => %s)", (epoch, ids, fences, list(set(fences))))
        connection.execute("SELECT foliot.leave(%s)", (epoch,))


if __name__ == "__main__":
    peerlib.main(setup=setup, bulk=bulk, single=single, latency=latency, worker=worker, churn=churn)

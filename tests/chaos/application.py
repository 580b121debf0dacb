"""The application of the chaos workers: handlers of every kind, each of which writes down its start and its end.
Those with flow control are in `flow_tasks.py`."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import psycopg

import watchbill
from tests.chaos import flow_tasks
from tests.chaos.flow_tasks import EFFECT, GROUP, PATIENT, URL
from tests.chaos.journal import VARIABLE
from tests.chaos.recording import recorded
from watchbill import App, Permanent, Retry, Skip, Snooze, current_job

app = App(name="chaos")
app.include(flow_tasks.tasks)
app.cluster.group(GROUP, tokens=32, handover_timeout=2)


@app.task(type="quick", retry=PATIENT)
async def quick() -> None:
    with recorded():
        pass


@app.task(type="once", retry=Retry(max_attempts=1))
async def once() -> None:
    with recorded():
        await asyncio.sleep(0.01)


@app.task(type="pause", retry=PATIENT)
async def pause(seconds: float) -> float:
    with recorded():
        await asyncio.sleep(seconds)
        return seconds


@app.task(type="in_thread", retry=PATIENT)
def in_thread(seconds: float) -> float:
    with recorded():
        time.sleep(seconds)
        return seconds


@app.task(type="in_process", retry=PATIENT, executor="process")
def in_process(seconds: float) -> float:
    with recorded():
        time.sleep(seconds)
        return seconds


@app.task(type="write_async", retry=PATIENT)
async def write_async(connection: watchbill.AsyncConnection, seconds: float) -> None:
    with recorded():
        job = current_job()
        await connection.execute(EFFECT, (job.id, job.fence))
        await asyncio.sleep(seconds)


@app.task(type="write_thread", retry=PATIENT)
def write_thread(connection: watchbill.Connection, seconds: float) -> None:
    with recorded():
        job = current_job()
        connection.execute(EFFECT, (job.id, job.fence))
        time.sleep(seconds)


@app.task(type="complete_myself", retry=PATIENT)
def complete_myself(seconds: float) -> None:
    """Its own connection and transaction, and the completion in it."""
    job = current_job()
    with ExitStack() as transaction:
        with recorded():
            connection = transaction.enter_context(psycopg.connect(os.environ[URL]))
            connection.execute(EFFECT, (job.id, job.fence))
            time.sleep(seconds)
        job.complete(connection=connection)


@app.task(type="guarded", retry=PATIENT)
def guarded(seconds: float) -> None:
    """Its own transaction, under the guard; the job itself is settled afterwards, so an effect may be repeated."""
    with recorded():
        with psycopg.connect(os.environ[URL]) as connection:
            job = current_job()
            job.guard(connection=connection)
            connection.execute(EFFECT, (job.id, job.fence))
            time.sleep(seconds)
        time.sleep(seconds)


@app.task(type="flaky", retry=PATIENT)
async def flaky(failures: int) -> int:
    with recorded():
        await asyncio.sleep(0)
        if current_job().attempt <= failures:
            raise ValueError(f"attempt {current_job().attempt}")
        return failures


@app.task(type="doomed", retry=Retry(max_attempts=3, backoff="fixed", base=0.05))
async def doomed() -> None:
    with recorded():
        raise ValueError("as always")


@app.task(type="permanent", retry=PATIENT)
async def permanent() -> None:
    with recorded():
        raise Permanent("never")


@app.task(type="dozy", retry=PATIENT)
def dozy() -> None:
    with recorded():
        mark = Path(os.environ[VARIABLE], f"dozed-{current_job().id}")
        if not mark.exists():
            mark.touch()
            raise Snooze(0.2)


@app.task(type="skip", retry=PATIENT)
def skip() -> None:
    with recorded():
        raise Skip("nothing to do")


@app.task(type="timed", retry=PATIENT, timeout=0.5)
async def timed() -> None:
    """Too slow at its first attempt."""
    with recorded():
        await asyncio.sleep(60 if current_job().attempt == 1 else 0)


@app.task(type="long", retry=PATIENT)
async def long() -> None:
    """Ends only when somebody cancels it."""
    with recorded():
        await asyncio.Event().wait()


@app.task(type="poison", retry=PATIENT)
async def poison() -> None:
    with recorded():
        os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(60)

"""The chaos tasks with limits, rates, order, uniqueness, batches, fair and routed queues. `promises.py` says what their
declarations promise."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import ExitStack
from pathlib import Path

import psycopg

import watchbill
from tests.chaos.journal import VARIABLE
from tests.chaos.promises import (
    ACCOUNT_LIMIT,
    API_LIMIT,
    BATCH_LIMIT,
    BATCH_SIZE,
    CALLS,
    DEBOUNCE_MAX_SECONDS,
    DEBOUNCE_SECONDS,
    FAIR_QUEUE_LIMIT,
    MANY_CALLS,
    ORDERED_ATTEMPTS,
    TASK_LIMIT,
    VISITS,
)
from tests.chaos.recording import journal, recorded, recorded_batch
from watchbill import Batch, BatchFailed, Debounce, Limit, Queue, Rate, Retry, Tasks, Unique, current_job

URL = "CHAOS_URL"  # for handlers with a connection of their own
EFFECT = "INSERT INTO effects (job_id, fence) VALUES (%s, %s)"
PATIENT = Retry(max_attempts=50, backoff="fixed", base=0.05, jitter=1)
FEW = Retry(max_attempts=ORDERED_ATTEMPTS, backoff="fixed", base=0.05)
GROUP = "chaos"

tasks = Tasks()
tasks.queue(Queue("fair", limit=FAIR_QUEUE_LIMIT, fair_by="{account}", shares={"1": 2}))

ACCOUNT = Limit(ACCOUNT_LIMIT, name="account", by="{account}")
API = Limit(API_LIMIT, name="api")


@tasks.task(type="limited", retry=PATIENT, limits=[ACCOUNT, API])
async def limited(account: int, seconds: float) -> None:
    with recorded():
        await asyncio.sleep(seconds)


@tasks.task(type="limited_write", retry=PATIENT, limits=[ACCOUNT, Limit(TASK_LIMIT)])
def limited_write(connection: watchbill.Connection, account: int, seconds: float) -> None:
    with recorded():
        connection.execute(EFFECT, (current_job().id, current_job().fence))
        time.sleep(seconds)


@tasks.task(type="limited_myself", retry=PATIENT, limits=[API])
def limited_myself(seconds: float) -> None:
    """Completes itself in a transaction of its own, which locks no key."""
    job = current_job()
    with ExitStack() as transaction:
        with recorded():
            connection = transaction.enter_context(psycopg.connect(os.environ[URL]))
            connection.execute(EFFECT, (job.id, job.fence))
            time.sleep(seconds)
        job.complete(connection=connection)


@tasks.task(
    type="rated",
    retry=PATIENT,
    limits=[Rate(rate.count, rate.per, name="calls") for rate in (CALLS, MANY_CALLS)],
)
async def rated() -> None:
    with recorded():
        pass


@tasks.task(
    type="rated_limited",
    retry=PATIENT,
    limits=[
        Limit(1, name="visits", by="{account}"),
        Rate(VISITS.count, VISITS.per, name="visits", by="{account}", evenly=VISITS.evenly),
    ],
)
def rated_limited(account: int, seconds: float) -> None:
    with recorded():
        time.sleep(seconds)


def _fail_at_first(failures: int) -> None:
    """An operator who has a dead job run again has forgiven it before."""
    if current_job().attempt <= failures and not forgiven(os.environ[VARIABLE], str(current_job().id)).exists():
        raise ValueError(f"attempt {current_job().attempt}")


def forgiven(directory: str, job_id: str) -> Path:
    return Path(directory, f"forgiven-{job_id}")


@tasks.task(type="ordered", retry=FEW, ordered_by="{key}")
async def ordered(key: int, failures: int, seconds: float) -> None:
    with recorded():
        await asyncio.sleep(seconds)
        _fail_at_first(failures)


@tasks.task(type="strict", retry=FEW, ordered_by="{key}", when_dead="pause")
def strict(key: int, failures: int, seconds: float) -> None:
    with recorded():
        time.sleep(seconds)
        _fail_at_first(failures)


@tasks.task(type="unique_waiting", retry=PATIENT, unique=Unique(by="{account}"))
def unique_waiting(account: int) -> None:
    """Writes down which changes of its account it sees."""
    with recorded():
        with psycopg.connect(os.environ[URL]) as connection:
            rows = connection.execute("SELECT n FROM changes WHERE account = %s", (account,)).fetchall()
        journal().write("saw", id=current_job().id, fence=current_job().fence, changes=[n for (n,) in rows])


@tasks.task(type="unique_unfinished", retry=PATIENT, unique=Unique(by="{account}", until="finished"))
async def unique_unfinished(account: int, seconds: float) -> None:
    with recorded():
        await asyncio.sleep(seconds)


@tasks.task(type="replaced", retry=PATIENT, unique=Unique(by="{doc}", on_duplicate="replace"))
async def replaced(doc: int, revision: str) -> None:
    with recorded(revision=revision):
        pass


@tasks.task(
    type="debounced",
    retry=PATIENT,
    unique=Debounce(by="{doc}", wait=DEBOUNCE_SECONDS, max_wait=DEBOUNCE_MAX_SECONDS),
)
async def debounced(doc: int, revision: str) -> None:
    with recorded(revision=revision):
        pass


@tasks.task(type="batched", retry=PATIENT, batch=Batch(size=BATCH_SIZE, wait=0.2))
async def batched(items: list[int]) -> list[int]:
    """Every fifth item fails at its first attempt."""
    with recorded_batch(items):
        await asyncio.sleep(0.02)
        answers = [2 * item for item in items]
        if failed := _first_fifths(items):
            raise BatchFailed(failed, results=answers)
        return answers


@tasks.task(type="batch_write", retry=PATIENT, batch=Batch(size=BATCH_SIZE, wait=0.1))
def batch_write(connection: watchbill.Connection, items: list[int]) -> list[int]:
    """The same in one transaction with the end of its jobs; what fails has written nothing."""
    with recorded_batch(items):
        failed = _first_fifths(items)
        for place, job in enumerate(current_job().batch):
            if place not in failed:
                connection.execute(EFFECT, (job.id, job.fence))
        answers = [2 * item for item in items]
        if failed:
            raise BatchFailed(failed, results=answers)
        return answers


@tasks.task(type="batch_limited", retry=PATIENT, batch=Batch(size=BATCH_SIZE, wait=0.1), limits=[Limit(BATCH_LIMIT)])
def batch_limited(items: list[int]) -> list[int]:
    with recorded_batch(items):
        time.sleep(0.05)
        return [2 * item for item in items]


def _first_fifths(items: list[int]) -> dict[int, BaseException]:
    jobs = current_job().batch
    return {
        place: ValueError(f"item {item}")
        for place, item in enumerate(items)
        if item % 5 == 0 and jobs[place].attempt == 1
    }


@tasks.task(type="fair", queue="fair", retry=PATIENT, limits=[ACCOUNT])
async def fair(account: int, seconds: float) -> None:
    with recorded():
        await asyncio.sleep(seconds)


@tasks.task(type="routed", queue="routed", retry=PATIENT, route_by="{customer}", group=GROUP)
async def routed(customer: int, seconds: float) -> None:
    with recorded():
        await asyncio.sleep(seconds)


@tasks.task(
    type="routed_ordered", queue="routed", retry=FEW, route_by="{customer}", ordered_by="{customer}", group=GROUP
)
def routed_ordered(customer: int, failures: int, seconds: float) -> None:
    with recorded():
        time.sleep(seconds)
        _fail_at_first(failures)


@tasks.task(type="discarded", retry=PATIENT, limits=[Limit(1, by="{place}", when_full="discard")])
async def discarded(place: int, seconds: float) -> None:
    with recorded():
        await asyncio.sleep(seconds)


@tasks.task(type="superseded", retry=PATIENT, limits=[Limit(1, by="{place}", when_full="replace")])
async def superseded(place: int, seconds: float) -> None:
    with recorded():
        await asyncio.sleep(seconds)

"""Producers that know, of each job, whether it was acknowledged, rolled back, or is in doubt; doubts are sent again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

import orjson
import psycopg

from watchbill.app.task import Task
from watchbill.client import plans
from watchbill.client.clients import Client
from watchbill.client.runners import run
from watchbill.errors import WatchbillError
from watchbill.model.ids import new_id
from watchbill.model.job import Enqueued, NewJob
from watchbill.postgres.connect import Connection
from watchbill.store.queries import queries
from tests.chaos import application
from tests.chaos.journal import Journal

KEYS = 5
DOUBTFUL = (psycopg.Error, WatchbillError, OSError)


@dataclass(frozen=True)
class Kind:
    """A task to enqueue, with arguments drawn from chance; `weight` is how often."""

    task: Task[..., Any]
    weight: int
    arguments: Callable[[Random], dict[str, Any]] = lambda random: {}


def _short(random: Random) -> dict[str, Any]:
    return {"seconds": round(random.choice([0.0, 0.01, 0.1, 0.5]), 3)}


KINDS = (
    Kind(application.quick, 10),
    Kind(application.once, 2),
    Kind(application.pause, 4, _short),
    Kind(application.in_thread, 4, _short),
    Kind(application.in_process, 2, _short),
    Kind(application.write_async, 6, _short),
    Kind(application.write_thread, 6, _short),
    Kind(application.complete_myself, 4, _short),
    Kind(application.guarded, 4, _short),
    Kind(application.flaky, 4, lambda random: {"failures": random.randint(1, 3)}),
    Kind(application.doomed, 2),
    Kind(application.permanent, 1),
    Kind(application.dozy, 2),
    Kind(application.skip, 2),
    Kind(application.timed, 1),
    Kind(application.long, 1),
)


def draw(random: Random, kinds: tuple[Kind, ...] = KINDS) -> tuple[NewJob, float]:
    """A job, and the time before which it must not start."""
    (kind,) = random.choices(kinds, [kind.weight for kind in kinds])
    options: dict[str, Any] = {"id": new_id(), "priority": random.choice([0, 0, 0, 5, -5])}
    not_before = 0.0
    if random.random() < 0.2:
        options["delay"] = random.uniform(0.05, 2)
        not_before = time.time() + options["delay"]
    if random.random() < 0.15:
        options["idempotency_key"] = f"key-{random.randrange(KEYS)}"
    return kind.task.using(**options).new_job(orjson.dumps(kind.arguments(random))), not_before


class Producer(threading.Thread):
    """Sends `count` jobs over connections that may break at any moment, one way or another."""

    def __init__(self, url: str, journal: Journal, seed: int, count: int, *, pace: float = 0.0) -> None:
        super().__init__(name=f"producer-{seed}", daemon=True)
        self._url, self._journal, self._random, self._count, self._pace = url, journal, Random(seed), count, pace
        self._queries = queries("watchbill")
        self._client = Client(url, pool_size=2)
        self._over = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            ways = (self._enqueue, self._enqueue, self._enqueue_many, self._in_transaction, self._take_back)
            sent = 0
            while sent < self._count and not self._over.wait(self._pace):
                sent += self._random.choice(ways)()
        except BaseException as error:  # noqa: BLE001  (told to the test, which raises it)
            self.failure = error
        finally:
            self._client.close()

    def stop(self) -> None:
        self._over.set()

    # -- ways to enqueue; each returns how many jobs it was about

    def _enqueue(self) -> int:
        (job,) = self._draw(1)
        self._until_acknowledged([job], lambda resend: [self._client.run(plans.enqueue(job, resend=resend))])
        return 1

    def _enqueue_many(self) -> int:
        jobs = self._draw(self._random.randint(2, 10))

        def send(resend: bool) -> list[Enqueued]:
            return self._client.run_together(plans.enqueue_many(jobs, resend=resend))

        self._until_acknowledged(jobs, send)
        return len(jobs)

    def _in_transaction(self) -> int:
        """With a connection of our own; its commit is the acknowledgement."""
        jobs = self._draw(self._random.randint(1, 3))

        def send(resend: bool) -> list[Enqueued]:
            with Connection.connect(self._url) as connection:
                return [run(plans.enqueue(job, resend=resend), connection, self._queries) for job in jobs]

        self._until_acknowledged(jobs, send)
        return len(jobs)

    def _take_back(self) -> int:
        """Never committed, whatever happens to the connection."""
        jobs = self._draw(self._random.randint(1, 3), keys=False)
        try:
            with Connection.connect(self._url) as connection:
                for job in jobs:
                    run(plans.enqueue(job), connection, self._queries)
                if self._random.random() < 0.5:
                    connection.rollback()
                else:
                    connection.close()
        except DOUBTFUL:
            pass
        for job in jobs:
            self._journal.write("rolled_back", id=job.id)
        return len(jobs)

    def _draw(self, count: int, *, keys: bool = True) -> list[NewJob]:
        jobs = []
        for _ in range(count):
            job, not_before = draw(self._random)
            while job.idempotency_key is not None and not keys:
                job, not_before = draw(self._random)
            key = job.idempotency_key
            self._journal.write("sent", id=job.id, type=job.type, key=key, not_before=not_before)
            jobs.append(job)
        return jobs

    def _until_acknowledged(self, jobs: list[NewJob], send: Callable[[bool], list[Enqueued]]) -> None:
        resend = False
        while not self._over.is_set():
            try:
                answers = send(resend)
            except DOUBTFUL:
                resend = True
                self._over.wait(0.1)
                continue
            for job, answer in zip(jobs, answers, strict=True):
                self._journal.write("acknowledged", id=job.id, answer=answer.id, created=answer.created)
            return


def external_job(journal: Journal, queue: str) -> NewJob:
    """For a worker in another language: its payload says its id, since a handler there is told nothing else."""
    job_id = new_id()
    journal.write("sent", id=job_id, type="external")
    return NewJob(id=job_id, type="external", payload=orjson.dumps({"id": str(job_id)}), queue=queue, max_attempts=50)


def acknowledge(journal: Journal, job: NewJob, answer: UUID) -> None:
    journal.write("acknowledged", id=job.id, answer=answer, created=True)

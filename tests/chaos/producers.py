"""Producers that know, of each job, whether it was acknowledged, rolled back, or is in doubt; doubts are sent again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

import orjson
import psycopg

from tests.chaos import application, flow_tasks
from tests.chaos.journal import Journal
from watchbill.app.task import Task
from watchbill.client import operations
from watchbill.client.client import Client, run
from watchbill.errors import WatchbillError
from watchbill.model.ids import new_id
from watchbill.model.job import Enqueued, NewJob
from watchbill.postgres.connect import Connection
from watchbill.store.queries import queries

KEYS = 5
DOUBTFUL = (psycopg.Error, WatchbillError, OSError)


@dataclass(frozen=True)
class Kind:
    """A task to enqueue, with arguments drawn from chance; `weight` is how often. `options`: what its jobs may have."""

    task: Task[..., Any]
    weight: int
    arguments: Callable[[Random], dict[str, Any]] = lambda random: {}
    options: tuple[str, ...] = ("priority", "delay", "idempotency_key")


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


def _of(**most: int) -> Callable[[Random], dict[str, Any]]:
    """A short job of one of so many keys."""
    return lambda random: {name: random.randrange(number) for name, number in most.items()} | _short(random)


def _failing(**most: int) -> Callable[[Random], dict[str, Any]]:
    """The same; some fail at first, and some until they are dead."""
    return lambda random: _of(**most)(random) | {"failures": random.choice([0, 0, 0, 1, 2, 3])}


def _revised(random: Random) -> dict[str, Any]:
    return {"doc": random.randrange(3), "revision": f"{random.getrandbits(64):x}"}


def _item(random: Random) -> dict[str, Any]:
    return {"items": random.randrange(1000)}


FLOW_KINDS = (
    Kind(flow_tasks.limited, 6, _of(account=4)),
    Kind(flow_tasks.limited_write, 4, _of(account=4)),
    Kind(flow_tasks.limited_myself, 3, _short),
    Kind(flow_tasks.rated, 6),
    Kind(flow_tasks.rated_limited, 4, _of(account=3)),
    Kind(flow_tasks.ordered, 6, _failing(key=4), ("delay",)),
    Kind(flow_tasks.strict, 4, _failing(key=4), ("delay",)),
    Kind(flow_tasks.unique_unfinished, 3, _of(account=3), ("priority", "delay")),
    Kind(flow_tasks.replaced, 3, _revised, ("priority", "delay")),
    Kind(flow_tasks.debounced, 3, _revised, ("priority",)),
    Kind(flow_tasks.batched, 6, _item, ("priority", "delay")),
    Kind(flow_tasks.batch_write, 4, _item, ("priority", "delay")),
    Kind(flow_tasks.batch_limited, 4, _item, ("priority", "delay")),
    Kind(flow_tasks.fair, 6, _of(account=4)),
    Kind(flow_tasks.routed, 4, _of(customer=6)),
    Kind(flow_tasks.routed_ordered, 4, _failing(customer=4), ("delay",)),
    Kind(flow_tasks.discarded, 2, _of(place=2), ("priority",)),
    Kind(flow_tasks.superseded, 2, _of(place=2), ("priority",)),
)

CROWDED_KINDS = (
    Kind(flow_tasks.limited, 1, lambda random: {"account": random.randrange(4), "seconds": 0.0}),
    Kind(flow_tasks.rated, 1),
    Kind(flow_tasks.rated_limited, 1, lambda random: {"account": random.randrange(3), "seconds": 0.0}),
    Kind(flow_tasks.ordered, 1, lambda random: {"key": random.randrange(4), "failures": 0, "seconds": 0.0}),
    Kind(flow_tasks.batch_limited, 1, _item),
    Kind(flow_tasks.fair, 1, lambda random: {"account": random.randrange(4), "seconds": 0.0}),
)


def draw(random: Random, kinds: tuple[Kind, ...] = KINDS + FLOW_KINDS) -> tuple[NewJob, float]:
    """A job, and the time before which it must not start."""
    (kind,) = random.choices(kinds, [kind.weight for kind in kinds])
    options: dict[str, Any] = {"id": new_id()}
    not_before = 0.0
    if "priority" in kind.options:
        options["priority"] = random.choice([0, 0, 0, 5, -5])
    is_unique = kind.task.options.unique is not None  # it must wait for a while, to meet duplicates
    if "delay" in kind.options and random.random() < (0.7 if is_unique else 0.2):
        options["delay"] = random.uniform(0.05, 2)
        # A duplicate that replaces a waiting job gives it its own time.
        not_before = 0.0 if is_unique else time.time() + options["delay"]
    if "idempotency_key" in kind.options and random.random() < 0.15:
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
            ways = [self._enqueue, self._enqueue, self._enqueue_many, self._in_transaction, self._take_back]
            ways += [self._change, self._crowd_one_key]
            sent = last = 0
            while sent < self._count and not self._over.wait(self._pace * last):
                last = self._random.choice(ways)()
                sent += last
        except BaseException as error:  # noqa: BLE001  (told to the test, which raises it)
            self.failure = error
        finally:
            self._client.close()

    def stop(self) -> None:
        self._over.set()

    def send(self, job: NewJob) -> None:
        """A job of the caller's choice, before the others."""
        self._tell(job, 0.0)
        self._send(job)

    def _send(self, job: NewJob) -> None:
        self._until_acknowledged([job], lambda resend: [self._client.run(operations.enqueue(job, resend=resend))])

    # -- ways to enqueue; each returns how many jobs it was about

    def _enqueue(self) -> int:
        (job,) = self._draw(1)
        self._send(job)
        return 1

    def _enqueue_many(self) -> int:
        jobs = self._draw(self._random.randint(2, 10))

        def send(resend: bool) -> list[Enqueued]:
            return self._client.run_in_transaction(operations.enqueue_many(jobs, resend=resend))

        self._until_acknowledged(jobs, send)
        return len(jobs)

    def _crowd_one_key(self) -> int:
        """Many jobs of one key at once, so that all workers claim them at the same time."""
        kind, number = self._random.choice(CROWDED_KINDS), self._random.randint(5, 20)
        payload = orjson.dumps(kind.arguments(self._random))
        jobs = [kind.task.using(id=new_id()).new_job(payload) for _ in range(number)]
        for job in jobs:
            self._tell(job, 0.0)
        self._until_acknowledged(
            jobs, lambda resend: self._client.run_in_transaction(operations.enqueue_many(jobs, resend=resend))
        )
        return number

    def _in_transaction(self) -> int:
        """With a connection of our own; its commit is the acknowledgement."""
        jobs = self._draw(self._random.randint(1, 3))

        def send(resend: bool) -> list[Enqueued]:
            with Connection.connect(self._url) as connection:
                return [run(operations.enqueue(job, resend=resend), connection, self._queries) for job in jobs]

        self._until_acknowledged(jobs, send)
        return len(jobs)

    def _change(self) -> int:
        """Writes something and relies on a waiting job to see it, if there is one."""
        task = flow_tasks.unique_waiting.using(id=new_id(), delay=self._random.choice([0, 0.5, 1.5]))
        job = task.new_job(orjson.dumps({"account": self._random.randrange(3)}))
        self._tell(job, 0.0)
        changes: list[int] = []

        def send(resend: bool) -> list[Enqueued]:
            with Connection.connect(self._url) as connection:
                query = "INSERT INTO changes (account) SELECT (%s::jsonb->>'account')::int RETURNING n"
                ((number,),) = connection.execute(query, (job.payload.decode(),)).fetchall()
                answer = run(operations.enqueue(job, resend=resend), connection, self._queries)
                self._over.wait(self._random.choice([0, 0.05, 0.3]))
            changes.append(number)
            return [answer]

        self._until_acknowledged([job], send, changes)
        return 1

    def _take_back(self) -> int:
        """Never committed, whatever happens to the connection."""
        jobs = self._draw(self._random.randint(1, 3), keys=False)
        try:
            with Connection.connect(self._url) as connection:
                for job in jobs:
                    run(operations.enqueue(job), connection, self._queries)
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
            self._tell(job, not_before)
            jobs.append(job)
        return jobs

    def _tell(self, job: NewJob, not_before: float) -> None:
        arguments = orjson.loads(job.payload)
        self._journal.write(
            "sent", id=job.id, type=job.type, key=job.idempotency_key, not_before=not_before, arguments=arguments
        )

    def _until_acknowledged(
        self, jobs: list[NewJob], send: Callable[[bool], list[Enqueued]], changes: Sequence[int] = ()
    ) -> None:
        """`changes` has, after a send, the number of what was written in its transaction."""
        resend = False
        while not self._over.is_set():
            asked = time.time()
            try:
                answers = send(resend)
            except DOUBTFUL:
                resend = True
                self._over.wait(0.1)
                continue
            for job, answer in zip(jobs, answers, strict=True):
                told = {"id": job.id, "answer": answer.id, "created": answer.created, "asked": asked}
                self._journal.write("acknowledged", **told, change=changes[-1] if changes else None)
            return


def job_that_dies_and_pauses_its_key() -> NewJob:
    return flow_tasks.strict.using(id=new_id()).new_job(orjson.dumps({"key": 0, "failures": 3, "seconds": 0.0}))


def external_job(journal: Journal, queue: str) -> NewJob:
    """For a worker in another language: its payload says its id, since a handler there is told nothing else."""
    job_id = new_id()
    journal.write("sent", id=job_id, type="external")
    return NewJob(id=job_id, type="external", payload=orjson.dumps({"id": str(job_id)}), queue=queue, max_attempts=50)


def acknowledge(journal: Journal, job: NewJob, answer: UUID) -> None:
    journal.write("acknowledged", id=job.id, answer=answer, created=True)

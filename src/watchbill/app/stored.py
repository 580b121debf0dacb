"""Large payloads by reference: what an App puts into its store, and how a handler gets it back.

The object is written before the job, so that whoever sees the job finds it. The job's payload is then the digest of the
content alone: two payloads under one idempotency key compare as if they were there. The key travels in the job's meta.

Nothing is deleted when a job ends, since it may be rescheduled as long as it is kept; nor when an enqueue fails or is
rolled back, since that is often not known. `watchbill/maintenance/sweeper.py` finds what no job refers to. Only what a
duplicate left behind is deleted at once.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson

from watchbill.app.payload import InvalidPayload
from watchbill.model.job import Enqueued, NewJob
from watchbill.payloads import NoPayloadStore, PayloadGone, PayloadStore, StoreFailed, new_key, open_store
from watchbill.payloads.store import job_of
from watchbill.worker.handlers import STORED, Handler
from watchbill.worker.run import Run, current_job

if TYPE_CHECKING:
    from watchbill.settings import Settings

logger = logging.getLogger("watchbill")


class Stored:
    """The payload store of one App, if it has one."""

    def __init__(self, settings: Settings, given: PayloadStore | None) -> None:
        self._settings, self._given = settings, given
        self._above = min(settings.payload_store_above, settings.max_payload)

    @cached_property
    def store(self) -> PayloadStore | None:
        if self._given is not None:
            return self._given
        place = self._settings.payload_store
        return None if place is None else open_store(place)

    # -- when a job is enqueued

    def keep(self, jobs: list[NewJob], installation: Callable[[], str]) -> list[NewJob]:
        """The jobs as they go into the database; large payloads are put into the store."""
        large = [self._is_large(job) for job in jobs]
        return self._kept(jobs, large, installation()) if any(large) else jobs

    async def akeep(self, jobs: list[NewJob], installation: Callable[[], Awaitable[str]]) -> list[NewJob]:
        large = [self._is_large(job) for job in jobs]
        if not any(large):
            return jobs
        return await asyncio.to_thread(self._kept, jobs, large, await installation())

    def _kept(self, jobs: list[NewJob], large: list[bool], installation: str) -> list[NewJob]:
        return [self._put(job, installation) if is_large else job for job, is_large in zip(jobs, large, strict=True)]

    def _is_large(self, job: NewJob) -> bool:
        size = len(job.payload)
        if size <= self._above or (self.store is None and size <= self._settings.max_payload):
            if job.payload.startswith(STORED[1:]):
                raise InvalidPayload(f"{job.type}: a payload cannot begin with $stored, which marks a reference.")
            return False
        if self.store is None:
            raise InvalidPayload(
                f"{job.type}: the payload has {size:,} bytes, the limit is {self._settings.max_payload:,}.",
                hint="Name a payload_store in the settings for large ones, raise max_payload, or send a reference.",
            )
        return True

    def _put(self, job: NewJob, installation: str) -> NewJob:
        assert self.store is not None
        digest = _digest(job.payload)
        key = new_key(job.id, installation, digest)
        try:
            self.store.put(key, job.payload)
        except Exception as error:
            raise StoreFailed(
                f"{job.type}: the payload of {len(job.payload):,} bytes could not be stored in {self.store}: {error}.",
                hint="Nothing was enqueued.",
            ) from error
        meta = orjson.loads(job.meta) if job.meta else {}
        return job._replace(payload=orjson.dumps({"$stored": digest}), meta=orjson.dumps(meta | {"stored": key}))

    def drop_duplicates(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
        """The job that stands has an object of its own."""
        for job, answer in zip(jobs, answers, strict=True):
            if answer.id is not job.id and answer.id != job.id and self._is_kept(job):
                self._drop(job)

    async def adrop_duplicates(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
        if any(answer.id != job.id and self._is_kept(job) for job, answer in zip(jobs, answers, strict=True)):
            await asyncio.to_thread(self.drop_duplicates, jobs, answers)

    def _is_kept(self, job: NewJob) -> bool:
        return job.payload.startswith(STORED[1:])

    def _drop(self, job: NewJob) -> None:
        assert self.store is not None
        assert job.meta is not None
        try:
            self.store.delete(orjson.loads(job.meta)["stored"])
        except Exception as error:  # noqa: BLE001  (the sweeper will find it)
            logger.warning("A payload that no job needs is left in %s for now: %s", self.store, error)

    # -- when it runs

    def reading(self, handler: Handler) -> Handler:
        """The handler of a task for jobs whose payload is in the store: it is fetched where the handler runs, and on
        the loop's account in a thread."""
        if handler.kind == "async":

            @wraps(handler.function)
            async def fetch_and_run(*connection: Any, reference: bytes, version: int) -> Any:
                raw = await asyncio.to_thread(self._fetch, current_job(), reference)
                return await handler.function(*connection, **handler.decode(raw, version))

        else:

            @wraps(handler.function)
            def fetch_and_run(*connection: Any, reference: bytes, version: int) -> Any:
                raw = self._fetch(current_job(), reference)
                return handler.function(*connection, **handler.decode(raw, version))

        return replace(handler, function=fetch_and_run, decode=_unread)

    def _fetch(self, job: Run, payload: bytes) -> bytes:
        return self.fetch(job.id, orjson.loads(payload)["$stored"], job.meta.get("stored"))

    def fetch(self, job_id: UUID, digest: str, key: str | None) -> bytes:
        """The payload of a job that refers to it."""
        if self.store is None:
            raise NoPayloadStore(
                f"The payload of job {job_id} is in a payload store, and this process knows of none.",
                hint="Give it the setting payload_store that the producer has.",
            )
        if key is None or job_of(key) is None:
            raise PayloadGone(f"The payload of job {job_id} is in a payload store, and {key!r} is no key of one.")
        try:
            raw = self.store.get(key)
        except FileNotFoundError:
            raise PayloadGone(
                f"The payload of job {job_id} is gone: {self.store} has no {key}.",
                hint="Was it deleted by hand, or is payload_store here another place than the producer's?",
            ) from None
        except Exception as error:
            raise StoreFailed(f"The payload of job {job_id} could not be read from {self.store}: {error}.") from error
        if _digest(raw) != digest:
            raise PayloadGone(f"The payload of job {job_id} is not what was stored: {self.store}, {key}.")
        return raw


def _digest(payload: bytes) -> str:
    """Equal for equal JSON, however it was written."""
    return hashlib.sha256(orjson.dumps(orjson.loads(payload), option=orjson.OPT_SORT_KEYS)).hexdigest()


def _unread(payload: bytes, version: int) -> dict[str, Any]:
    return {"reference": payload, "version": version}

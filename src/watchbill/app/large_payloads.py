"""Large payloads by reference: an App puts them into its payload store, and a handler reads them from there.

The object is written before the job, so that every reader of the job finds it. The job's payload is then only the
digest of the content, so that two payloads under one idempotency key still compare. The object's key is in the job's
meta.

Nothing is deleted when a job ends, since it may be rescheduled as long as it is kept, nor when an enqueue fails or is
rolled back, since the producer often cannot know that. `watchbill/maintenance/sweeper.py` deletes objects that no job
refers to. Only the object of a duplicate is deleted at once.
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

from watchbill.app.key_formats import render_keys
from watchbill.app.payload import InvalidPayload
from watchbill.model.job import Enqueued, NewJob
from watchbill.payloads import NoPayloadStore, PayloadGone, PayloadStore, StoreFailed, new_key, open_store, read_job_id
from watchbill.worker.handlers import STORED, Handler
from watchbill.worker.run import Run, current_job

if TYPE_CHECKING:
    from watchbill.settings import Settings

logger = logging.getLogger("watchbill")
REFERENCE = STORED[1:]  # how a reference to the store begins: STORED without the version byte of binary jsonb


class LargePayloads:
    """The payload store of one App, if it has one."""

    def __init__(self, settings: Settings, given: PayloadStore | None) -> None:
        self._settings, self._given = settings, given
        self.threshold = min(settings.payload_store_above, settings.max_payload)

    @cached_property
    def store(self) -> PayloadStore | None:
        if self._given is not None:
            return self._given
        place = self._settings.payload_store
        return None if place is None else open_store(place)

    # -- A producer calls these when it enqueues jobs.

    def store_all(self, jobs: Sequence[NewJob], installation: Callable[[], str]) -> Sequence[NewJob]:
        """Puts large payloads into the store, and returns the jobs with references instead."""
        large = [self._is_large(job) for job in jobs]
        return self._put_all(jobs, large, installation()) if any(large) else jobs

    async def astore_all(self, jobs: Sequence[NewJob], installation: Callable[[], Awaitable[str]]) -> Sequence[NewJob]:
        large = [self._is_large(job) for job in jobs]
        if not any(large):
            return jobs
        return await asyncio.to_thread(self._put_all, jobs, large, await installation())

    def _put_all(self, jobs: Sequence[NewJob], large: list[bool], installation: str) -> list[NewJob]:
        return [self._put(job, installation) if is_large else job for job, is_large in zip(jobs, large, strict=True)]

    def _is_large(self, job: NewJob) -> bool:
        size = len(job.payload)
        if size <= self.threshold or (self.store is None and size <= self._settings.max_payload):
            if job.payload.startswith(REFERENCE):
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
        job = render_keys(job)
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

    def delete_duplicates(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
        """Deletes objects of jobs that were not created: the first job with that key has an object of its own."""
        for job, answer in zip(jobs, answers, strict=True):
            if answer.id != job.id and job.payload.startswith(REFERENCE):
                self._delete(job)

    def _delete(self, job: NewJob) -> None:
        assert self.store is not None
        assert job.meta is not None
        try:
            self.store.delete(orjson.loads(job.meta)["stored"])
        except Exception as error:  # noqa: BLE001  (the sweeper will find it)
            logger.warning("Could not delete an unused payload from %s; the sweeper will: %s", self.store, error)

    # -- A worker calls these when it runs a job.

    def make_reading_handler(self, handler: Handler) -> Handler:
        """Makes the handler for jobs whose payload is in the store. It fetches the payload where the function runs;
        for an `async def`, in a thread."""
        if handler.kind == "async":

            @wraps(handler.function)
            async def fetch_and_run(*connection: Any, reference: bytes, version: int) -> Any:
                raw = await asyncio.to_thread(self.fetch_reference, current_job(), reference)
                return await handler.function(*connection, **handler.decode(raw, version))

        else:

            @wraps(handler.function)
            def fetch_and_run(*connection: Any, reference: bytes, version: int) -> Any:
                raw = self.fetch_reference(current_job(), reference)
                return handler.function(*connection, **handler.decode(raw, version))

        return replace(handler, function=fetch_and_run, decode=_keep_reference)

    def fetch_reference(self, job: Run, payload: bytes) -> bytes:
        """Reads the payload of a run from the store; `payload` is the reference to it."""
        reference = orjson.loads(payload)
        raw = self.fetch(job.id, reference["$stored"], job.meta.get("stored"))
        if "$results" not in reference:  # of other jobs, which the database has written beside the reference
            return raw
        return orjson.dumps(orjson.loads(raw) | reference["$results"])

    def fetch(self, job_id: UUID, digest: str, key: str | None) -> bytes:
        """Reads the payload that a job refers to."""
        if self.store is None:
            raise NoPayloadStore(
                f"The payload of job {job_id} is in a payload store, and this process has none.",
                hint="Give it the setting payload_store that the producer has.",
            )
        if key is None or read_job_id(key) is None:
            raise PayloadGone(f"The payload of job {job_id} is in a payload store, but {key!r} is not a key of one.")
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
            raise PayloadGone(f"The payload of job {job_id} has changed since it was stored: {key} in {self.store}.")
        return raw


def _digest(payload: bytes) -> str:
    """A hash of the JSON value, whatever its spaces and the order of its keys."""
    return hashlib.sha256(orjson.dumps(orjson.loads(payload), option=orjson.OPT_SORT_KEYS)).hexdigest()


def _keep_reference(payload: bytes, version: int) -> dict[str, Any]:
    return {"reference": payload, "version": version}

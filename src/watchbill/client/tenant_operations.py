"""Operations on tenants: their quotas and their erasure."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from watchbill.client.operations import Operation, Statement
from watchbill.errors import WatchbillError
from watchbill.model.tenant_record import ErasureRecord, TenantRecord
from watchbill.payloads import PayloadStore, read_job_id

logger = logging.getLogger("watchbill")
PAUSE_SECONDS = 0.5  # while jobs of the tenant still run


class NoSuchTenant(WatchbillError):
    """Nothing belongs to this tenant, and it has no quota."""


def tenants(name: str | None = None) -> Operation[list[TenantRecord]]:
    rows = yield Statement("tenants", (name,), TenantRecord)
    return [TenantRecord(*row) for row in rows]


def get_tenant(name: str) -> Operation[TenantRecord]:
    found = yield from tenants(name)
    if not found:
        raise NoSuchTenant(
            f"Tenant {name!r} has no quota, no unfinished job and no schedule.",
            hint="`watchbill tenants` lists those that have one.",
        )
    return found[0]


def set_tenant(name: str, quotas: Mapping[str, object]) -> Operation[bool]:
    ((is_changed,),) = yield Statement("set_tenant", (name, json.dumps(dict(quotas))), (bool,))
    return bool(is_changed)


def preview_erasure(name: str) -> Operation[dict[str, int]]:
    """How many rows of each table an erasure would delete now."""
    rows = yield Statement("preview_erasure", (name,), (str, int))
    return dict(rows)


def erase_part(name: str, force: bool) -> Operation[tuple[Any, ...]]:
    (row,) = yield Statement("erase_tenant", (name, force), (str, int, str, list[str], bool))
    return row


class Erasure:
    """One erasure, which a caller repeats part by part until it is done, or has waited for too long."""

    def __init__(self, tenant: str, *, force: bool, wait: float, store: PayloadStore | None) -> None:
        """Waits `wait` seconds at most for jobs that were asked to stop, since the last one ended."""
        self.tenant, self.force = tenant, force
        self._wait, self._store = wait, store
        self._deleted: Counter[str] = Counter()
        self._payloads = 0
        self._waiting: str | None = None
        self._progressed_at = time.monotonic()
        self.is_done = False

    def note(self, row: tuple[Any, ...]) -> float:
        """Takes the answer to one part. Returns the seconds to pause before the next one."""
        step, deleted, self._waiting, stored, self.is_done = row
        self._deleted[step] += deleted
        if deleted or step != "jobs":
            self._progressed_at = time.monotonic()
        self._delete_payloads(stored or [])
        return 0.0 if self._waiting is None else PAUSE_SECONDS

    @property
    def is_over(self) -> bool:
        """Whether no further part is to be erased: all is done, or running jobs have not stopped in time."""
        is_late = time.monotonic() - self._progressed_at >= self._wait
        return self.is_done or (self._waiting is not None and is_late)

    @property
    def record(self) -> ErasureRecord:
        deleted = {step: number for step, number in self._deleted.items() if number}
        waiting = None if self.is_done else self._waiting or "more time"
        return ErasureRecord(self.tenant, deleted, self._payloads, waiting)

    def _delete_payloads(self, keys: list[str]) -> None:
        """Nothing refers to these objects any more, so the sweeper finds those that cannot be deleted now."""
        for key in keys:
            if self._store is None or read_job_id(key) is None:
                continue
            try:
                self._store.delete(key)
                self._payloads += 1
            except Exception as error:  # noqa: BLE001  (the store is the user's)
                logger.warning("Could not delete a payload from %s; the sweeper will: %s", self._store, error)


def erase(erasure: Erasure, run: Callable[[Operation[tuple[Any, ...]]], tuple[Any, ...]]) -> ErasureRecord:
    """Erases a tenant; `run` runs each part in a transaction of its own."""
    while not erasure.is_over:
        time.sleep(erasure.note(run(erase_part(erasure.tenant, erasure.force))))
    return erasure.record


async def aerase(
    erasure: Erasure, run: Callable[[Operation[tuple[Any, ...]]], Awaitable[tuple[Any, ...]]]
) -> ErasureRecord:
    while not erasure.is_over:
        row = await run(erase_part(erasure.tenant, erasure.force))
        await asyncio.sleep(await asyncio.to_thread(erasure.note, row))
    return erasure.record

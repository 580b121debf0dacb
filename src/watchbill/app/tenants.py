"""app.tenants: what tenants use, their quotas, and their erasure, each call with its `a`-twin.

Never part of a transaction of the caller: a quota counts for all, and an erasure is made of many transactions.
"""

from __future__ import annotations

import builtins
from typing import Unpack

from watchbill.app.producer import JobProducer
from watchbill.client import tenant_operations
from watchbill.client.tenant_operations import Erasure
from watchbill.model.durations import Duration, seconds
from watchbill.model.tenant_record import ErasureRecord, Quotas, TenantRecord


class Tenants:
    """Reads and sets the quotas of tenants, and erases tenants. Needs the rights of an operator."""

    def __init__(self, producer: JobProducer) -> None:
        self._producer = producer

    def list(self) -> builtins.list[TenantRecord]:
        """The tenants that have a quota, an unfinished job, a schedule or a role. Counts all unfinished jobs."""
        return self._producer.run_apart(tenant_operations.tenants())

    async def alist(self) -> builtins.list[TenantRecord]:
        return await self._producer.arun_apart(tenant_operations.tenants())

    def get(self, name: str) -> TenantRecord:
        """One of them. Raises NoSuchTenant."""
        return self._producer.run_apart(tenant_operations.get_tenant(name))

    async def aget(self, name: str) -> TenantRecord:
        return await self._producer.arun_apart(tenant_operations.get_tenant(name))

    def set(self, name: str, **quotas: Unpack[Quotas]) -> bool:
        """Changes the quotas that are given: `running`, `unfinished`, `payload_bytes`, `per_minute`, `heartbeats`. None
        removes one. False if nothing has changed."""
        return self._producer.run_apart(tenant_operations.set_tenant(name, quotas))

    async def aset(self, name: str, **quotas: Unpack[Quotas]) -> bool:
        return await self._producer.arun_apart(tenant_operations.set_tenant(name, quotas))

    def preview_erasure(self, name: str) -> dict[str, int]:
        """How many rows of each table `erase` would delete. Reads the whole history."""
        return self._producer.run_apart(tenant_operations.preview_erasure(name))

    async def apreview_erasure(self, name: str) -> dict[str, int]:
        return await self._producer.arun_apart(tenant_operations.preview_erasure(name))

    def erase(self, name: str, *, force: bool = False, wait: Duration = 60.0) -> ErasureRecord:
        """Deletes everything of a tenant, including payloads in the store of this App. First cancels its jobs. Running
        jobs are asked to stop; with `force` they are ended without waiting. Gives up when no running job has ended for
        `wait` seconds: then `is_done` is False, and another call continues."""
        return tenant_operations.erase(self._make_erasure(name, force, wait), self._producer.run_apart)

    async def aerase(self, name: str, *, force: bool = False, wait: Duration = 60.0) -> ErasureRecord:
        return await tenant_operations.aerase(self._make_erasure(name, force, wait), self._producer.arun_apart)

    def _make_erasure(self, name: str, force: bool, wait: Duration) -> Erasure:
        return Erasure(name, force=force, wait=seconds(wait), store=self._producer.runtime.large_payloads.store)

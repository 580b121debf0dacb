"""Nodes, token groups, pins and named locks. The endpoints of workers are in `work.py`."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from watchbill.client import cluster_operations, job_operations, lock_operations
from watchbill.dashboard.api.call import Call
from watchbill.dashboard.api.shapes import (
    Answer,
    Body,
    Flag,
    Limit,
    Name,
    Query,
    Seconds,
    Text,
    Wide,
    describe,
    list_of,
    read_number,
)
from watchbill.dashboard.problems import Problem
from watchbill.model.cluster import GroupRecord, PinRecord
from watchbill.model.job import NodeRecord
from watchbill.model.lock import LockRecord

NodeItem = describe(NodeRecord, "Node")
Nodes = list_of(NodeItem, "Nodes", "The newest first, at most 1,000.")
GroupItem = describe(GroupRecord, "Group", hash=str)
Groups = list_of(GroupItem, "Groups")
PinItem = describe(PinRecord, "Pin")
Pins = list_of(PinItem, "Pins")
LockItem = describe(LockRecord, "Lock")
Locks = list_of(LockItem, "Locks", "By name, at most 1,000.")


class NodeQuery(Query):
    gone: Flag = Field(False, description="Also nodes that have left or were lost.")


class PinQuery(Query):
    group: Name
    key: Text | None = None
    limit: Limit = 50


class NewPins(Body):
    """Keys whose jobs run on the nodes that match: give `pattern` (of node names, as in LIKE) or `labels`."""

    group: Name
    keys: Annotated[list[Annotated[Text, Field(min_length=1, max_length=1000)]], Field(min_length=1, max_length=1000)]
    pattern: Annotated[Text, Field(min_length=1, max_length=200)] | None = None
    labels: dict[str, Any] | None = None
    reason: Annotated[Text, Field(max_length=500)] | None = None
    expires: Seconds | None = None


class PinFilter(Query):
    group: Name
    key: Text | None = Field(None, description="Without it, all pins of the group.")


class OneGroup(Body):
    group: Name


class LockQuery(Query):
    free: Flag = Field(False, description="Also locks that are free.")


class LockName(Body):
    name: Name
    fence: Wide | None = None


class Pinned(Answer):
    pins: int


async def list_nodes(call: Call[None, NodeQuery]) -> dict[str, Any]:
    return {"items": await call.run(job_operations.nodes(gone=call.query.gone))}


async def drain(call: Call[Any, None]) -> dict[str, bool]:
    epoch = read_number(call.path["epoch"])
    async with call.acting() as transaction:
        nodes = await transaction.run(job_operations.nodes())
        name = next((node.name for node in nodes if node.epoch == epoch), None)
        if name is None:
            raise Problem(404, f"No node has the epoch {call.path['epoch'][:30]}.")
        return {"changed": await transaction.run(job_operations.drain(name))}


async def list_groups(call: Call[None, None]) -> dict[str, Any]:
    return {"items": await call.run(cluster_operations.groups())}


async def rebalance(call: Call[OneGroup, None]) -> dict[str, bool]:
    async with call.acting() as transaction:
        await transaction.run(cluster_operations.group(call.body.group))
        await transaction.run(cluster_operations.request_rebalance(call.body.group))
    return {"changed": True}


async def list_pins(call: Call[None, PinQuery]) -> dict[str, Any]:
    query = call.query
    return {"items": await call.run(cluster_operations.pins(query.group, key=query.key, limit=query.limit))}


async def pin(call: Call[NewPins, None]) -> dict[str, int]:
    body = call.body
    place = body.model_dump(include={"pattern", "labels", "reason"}, exclude_none=True)
    wanted = [{"key": key, **place} for key in body.keys]
    async with call.acting() as transaction:
        await transaction.run(cluster_operations.group(body.group))
        return {"pins": await transaction.run(cluster_operations.pin(body.group, wanted, expires=body.expires))}


async def clear_pins(call: Call[None, PinFilter]) -> dict[str, int]:
    query = call.query
    async with call.acting() as transaction:
        await transaction.run(cluster_operations.group(query.group))
        return {"pins": await transaction.run(cluster_operations.clear_pins(query.group, key=query.key))}


async def list_locks(call: Call[None, LockQuery]) -> dict[str, Any]:
    return {"items": await call.run(lock_operations.locks(free=call.query.free))}


async def release_lock(call: Call[LockName, None]) -> dict[str, bool]:
    return {"changed": await call.run(lock_operations.release(call.body.name, call.body.fence))}

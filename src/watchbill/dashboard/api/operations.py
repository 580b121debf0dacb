"""Bulk operations: changes of all jobs that match a filter."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from watchbill.client import bulk_operations
from watchbill.dashboard.api.call import Call, Reply
from watchbill.dashboard.api.shapes import Body, Limit, Query, Text, describe, list_of, read_number, shape
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.searches import read_search
from watchbill.filters.condition import Condition
from watchbill.model.bulk_operation import BulkOperation, ChangeKind, OperationPreview

MOST_IDS = 100


class NewOperation(Body):
    """Which jobs to change, and how. Give `q`, `ids` or both. With `dry_run` nothing is changed."""

    kind: ChangeKind
    q: Text = Field("", description="A filter, such as `state:dead type:mail.*`.")
    ids: Annotated[list[UUID], Field(min_length=1, max_length=MOST_IDS)] | None = None
    arguments: dict[str, Any] = Field(
        default_factory=dict, description="priority for set_priority, queue for move_queue, reason for cancel."
    )
    rate: Annotated[float, Field(ge=0.001, le=1e6, allow_inf_nan=False)] | None = Field(
        None, description="At most so many jobs a second."
    )
    max_jobs: Annotated[int, Field(ge=1, lt=2**53)] | None = None
    dry_run: bool = False


class OperationQuery(Query):
    limit: Limit = 50


OperationItem = describe(BulkOperation, "Operation")
PreviewItem = describe(OperationPreview, "OperationPreview")
Operations = list_of(OperationItem, "Operations", "The newest first.")
Started = shape(
    "StartedOperation",
    "The operation that was started, or what it would change.",
    operation=OperationItem | None,
    preview=PreviewItem | None,
)


async def start(call: Call[NewOperation, None]) -> Reply:
    body = call.body
    conditions = [*read_search(body.q, call.board.redaction, datetime.now(UTC))]
    if body.ids is not None:
        conditions.append(Condition("id", "=", tuple([str(each), str(each)] for each in body.ids)))
    if not conditions:
        raise Problem(422, "Say which jobs: q or ids.", errors=[{"pointer": "/q", "detail": "is empty"}])
    if body.dry_run:
        async with call.acting(read_only=True) as transaction:
            found = await transaction.run(bulk_operations.preview(body.kind, conditions, body.max_jobs))
        return Reply({"operation": None, "preview": found}, 200)
    async with call.acting() as transaction:
        number = await transaction.run(
            bulk_operations.start(
                body.kind,
                conditions,
                text=body.q or None,
                arguments=body.arguments,
                rate=body.rate,
                max_jobs=body.max_jobs,
                idempotency_key=call.idempotency_key,
            )
        )
        return Reply({"operation": await transaction.run(bulk_operations.get(number)), "preview": None}, 202)


async def find(call: Call[None, OperationQuery]) -> dict[str, Any]:
    return {"items": await call.run(bulk_operations.find(limit=call.query.limit))}


async def show(call: Call[None, None]) -> BulkOperation:
    return await call.run(bulk_operations.get(_read_number(call)))


async def pause(call: Call[Any, None]) -> BulkOperation:
    return await _change(call, bulk_operations.pause)


async def resume(call: Call[Any, None]) -> BulkOperation:
    return await _change(call, bulk_operations.resume)


async def cancel(call: Call[Any, None]) -> BulkOperation:
    return await _change(call, bulk_operations.cancel)


async def _change(call: Call[Any, None], verb: Any) -> BulkOperation:
    number = _read_number(call)
    async with call.acting() as transaction:
        await transaction.run(verb(number))
        return await transaction.run(bulk_operations.get(number))


def _read_number(call: Call[Any, Any]) -> int:
    number = read_number(call.path["number"])
    if number is None:
        raise Problem(404, f"There is no operation {call.path['number'][:30]}.")
    return number

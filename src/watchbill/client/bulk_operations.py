"""Changing all jobs that match a filter: bulk operations, which nodes work off; operations, as in `operations.py`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson

from watchbill.client.job_operations import read_page
from watchbill.client.operations import Operation, Statement
from watchbill.errors import WatchbillError
from watchbill.filters.condition import Condition, write_conditions
from watchbill.model.bulk_operation import (
    POSSIBLE_STATES,
    USUAL_STATES,
    BackfillPreview,
    BulkOperation,
    ChangeKind,
    OperationKind,
    OperationPreview,
)

EXACT_JOBS = 10_000  # a preview counts no more
PREVIEW_SECONDS = 5.0
_PAGE = 1_000


class NoSuchOperation(WatchbillError):
    """There is no bulk operation with this id."""

    def __init__(self, operation: int) -> None:
        super().__init__(f"There is no operation {operation}.", hint="`watchbill operations list` shows them.")


def preview(kind: ChangeKind, conditions: Sequence[Condition], most: int | None = None) -> Operation[OperationPreview]:
    """Counts what an operation would change, exactly up to EXACT_JOBS or `most`, and as far as it gets in
    PREVIEW_SECONDS."""
    names_state = any(each.field in ("state", "waits") and not each.is_negated for each in conditions)
    states = () if names_state else (Condition("state", "=", USUAL_STATES[kind]),)
    wanted = write_conditions([*conditions, *states])
    types: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    created: list[datetime] = []
    after: UUID | None = None
    until, limit = time.monotonic() + PREVIEW_SECONDS, min(most or EXACT_JOBS, EXACT_JOBS)
    while True:
        page = yield from read_page(wanted, after=after, limit=min(_PAGE, limit - types.total()))
        for job in page.jobs:
            if job.state in POSSIBLE_STATES[kind]:
                types[job.type] += 1
                created += [job.created_at]
            else:
                reasons[f"it is {job.state}"] += 1
        after = page.next
        if after is None or types.total() >= limit or time.monotonic() >= until:
            break
    return OperationPreview(
        types.total(), dict(types.most_common()), min(created, default=None), max(created, default=None),
        dict(reasons.most_common()), is_complete=after is None or types.total() == most,
    )  # fmt: skip


def start(
    kind: OperationKind,
    conditions: Sequence[Condition],
    *,
    text: str | None = None,
    arguments: dict[str, Any] | None = None,
    rate: float | None = None,
    max_jobs: int | None = None,
    idempotency_key: str | None = None,
) -> Operation[int]:
    """Starts an operation and returns its id. `text` is the filter as a person wrote it."""
    given = orjson.dumps(arguments or {}).decode()
    ((operation,),) = yield Statement(
        "start_operation", (kind, write_conditions(conditions), text, given, rate, max_jobs, idempotency_key), (int,)
    )
    return int(operation)


def describe_backfill(
    schedule: str, since: datetime, until: datetime, *, tenant: str | None = None, only_missed: bool = False
) -> dict[str, Any]:
    """The arguments of an operation that makes a job for each slot between two instants of the past."""
    times = {"from": _write_instant(since), "until": _write_instant(until)}
    return {"schedule": schedule, **times, "tenant": tenant, "only_missed": only_missed}


def _write_instant(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat(timespec="microseconds")


def preview_backfill(arguments: dict[str, Any]) -> Operation[BackfillPreview]:
    (row,) = yield Statement("preview_backfill", (orjson.dumps(arguments).decode(), EXACT_JOBS), BackfillPreview)
    return BackfillPreview(*row)


def add_items(operation: int, items: Sequence[dict[str, Any]]) -> Operation[int]:
    """Adds jobs to an operation that enqueues; returns how many it has now. `resume` begins it."""
    ((held,),) = yield Statement("add_operation_items", (operation, orjson.dumps(items).decode()), (int,))
    return int(held)


def run_step(operation: int) -> Operation[float | None]:
    """Does the next step. Returns after how many seconds the next one may be done; None if it does not run."""
    ((pause,),) = yield Statement("run_operation", (operation,), (float | None,))
    return None if pause is None else float(pause)


def find(*, limit: int = 50) -> Operation[list[BulkOperation]]:
    """Operations, the newest first."""
    return [BulkOperation(*row) for row in (yield Statement("bulk_operations", (None, limit), BulkOperation))]


def get(operation: int) -> Operation[BulkOperation]:
    rows = yield Statement("bulk_operations", (operation, 1), BulkOperation)
    if not rows:
        raise NoSuchOperation(operation)
    return BulkOperation(*rows[0])


def pause(operation: int) -> Operation[str]:
    return (yield from _change("pause_operation", operation))


def resume(operation: int) -> Operation[str]:
    return (yield from _change("resume_operation", operation))


def cancel(operation: int) -> Operation[str]:
    return (yield from _change("cancel_operation", operation))


def _change(query: str, operation: int) -> Operation[str]:
    """Returns the state that the operation has now."""
    ((state,),) = yield Statement(query, (operation,), (str | None,))
    if state is None:
        raise NoSuchOperation(operation)
    return str(state)

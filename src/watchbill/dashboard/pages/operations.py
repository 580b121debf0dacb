"""Bulk operations: how far each is, and forms to pause, resume and cancel it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from watchbill.client import bulk_operations, job_operations
from watchbill.client.operations import Operation
from watchbill.dashboard import charts
from watchbill.dashboard.actions import Change, Fields, act, read_field
from watchbill.dashboard.database import Transaction
from watchbill.dashboard.layout import read_frame
from watchbill.dashboard.pages.bulk import WORDS
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.rendering import show
from watchbill.dashboard.visit import get_visit
from watchbill.model.bulk_operation import BulkOperation

MOST_SHOWN, MOST_AUDITED = 100, 10


async def show_operations(request: Request) -> Response:
    visit = get_visit(request)
    identity = visit.require("reader")
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        found = await transaction.run(bulk_operations.find(limit=MOST_SHOWN))
    values = {"operations": [(each, _describe(each), _measure(each)) for each in found], "most": MOST_SHOWN}
    return show(request, "operations.html", frame, values)


def _describe(operation: BulkOperation) -> str:
    words = WORDS.get(operation.kind)
    if words is None:  # it makes jobs, on a terminal
        return operation.kind.replace("_", " ").capitalize()
    argument = operation.arguments.get(words.argument) if words.argument else None
    return words.verb if argument is None else f"{words.verb} to {str(argument)[:60]}"


def _measure(operation: BulkOperation) -> Markup:
    """How far it is, where that is known: only of one that says how many jobs it changes at most."""
    if operation.state == "done":
        return charts.meter(1, 1, "succeeded", label="done")
    handled = operation.done + operation.skipped + operation.failed
    state = "paused" if operation.state == "paused" else "running"
    return charts.meter(handled, operation.max_jobs, state) if operation.max_jobs else Markup("")


async def show_operation(request: Request) -> Response:
    visit = get_visit(request)
    identity = visit.require("reader")
    number = _read_number(request.query_params.get("id", ""))
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        operation = await transaction.run(bulk_operations.get(number))
        audit = await transaction.run(job_operations.audit(subject=f"operation {number}", limit=MOST_AUDITED))
    lasted = ((operation.ended_at or frame.now) - operation.created_at).total_seconds()
    values: dict[str, Any] = {
        "operation": operation, "said": _describe(operation), "meter": _measure(operation), "audit": audit,
        "speed": operation.done / lasted if lasted > 0 else None, "lasted": lasted,
        "reasons": sorted(operation.reasons.items(), key=lambda each: -each[1]),
    }  # fmt: skip
    return show(request, "operation.html", frame, values)


def _read_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise Problem(404, f"There is no operation {text[:40]!r}.")
    return int(text)


def _change(verb: Callable[[int], Operation[str]], said: str) -> Change:
    async def change(transaction: Transaction, fields: Fields) -> str:
        number = _read_number(read_field(fields, "id"))
        await transaction.run(verb(number))
        return said.format(number)

    return change


ROUTES: list[BaseRoute] = [
    Route("/operations", show_operations, methods=["GET"]),
    Route("/operation", show_operation, methods=["GET"]),
    Route(
        "/operation/pause",
        act("operator", _change(bulk_operations.pause, "Operation {} is paused: what it has changed stays.")),
        methods=["POST"],
    ),
    Route(
        "/operation/resume", act("operator", _change(bulk_operations.resume, "Operation {} goes on.")), methods=["POST"]
    ),
    Route(
        "/operation/cancel",
        act("operator", _change(bulk_operations.cancel, "Operation {} is canceled: what it has changed stays.")),
        methods=["POST"],
    ),
]

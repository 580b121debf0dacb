"""Tries a task: a form with its parameters if this process knows the task, otherwise with the payload of its last
job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from watchbill.client import job_operations, operations
from watchbill.dashboard.actions import Fields, read_field
from watchbill.dashboard.database import Transaction
from watchbill.dashboard.forms import read_form
from watchbill.dashboard.identity import Identity
from watchbill.dashboard.json_text import write_json
from watchbill.dashboard.layout import Frame, read_frame
from watchbill.dashboard.pages.job import may_change
from watchbill.dashboard.pages.job_actions import read_payload, read_priority, read_when
from watchbill.dashboard.pages.types import find_last_job, may_try
from watchbill.dashboard.payload_form import PayloadField, list_fields, read_fields
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.rendering import leave_notice, make_timepiece, show
from watchbill.dashboard.visit import Visit, get_visit, link
from watchbill.errors import WatchbillError
from watchbill.model.ids import new_id, read_id
from watchbill.model.job import JobRecord, NewJob
from watchbill.model.tenant import DEFAULT_TENANT


@dataclass(frozen=True)
class Form:
    """What is shown: `arguments` are fields of the parameters; None if the payload is written as JSON."""

    type: str
    arguments: list[PayloadField] | None
    fields: Mapping[str, str]
    problem: str | None = None


async def show_form(request: Request) -> Response:
    visit = get_visit(request)
    identity = visit.require("producer")
    name = request.query_params.get("name", "")
    _refuse_other_type(identity, name)
    task = visit.board.app.tasks.get(name)
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        example = None if task else await _read_example(transaction, name)
    fields = {"queue": task.queue if task else example.queue if example else "default", "payload": "{}"}
    if example is not None:
        hidden = visit.board.redaction.hide("payload", example.payload, type=name)
        fields |= {"payload": write_json(hidden), "example": str(example.id)}
    arguments = list_fields(task.describe_payload()) if task else None
    return _show(request, frame, Form(name, arguments, fields | {each.field: each.value for each in arguments or ()}))


async def _read_example(transaction: Transaction, name: str) -> JobRecord | None:
    found = await find_last_job(transaction, name)
    return await transaction.run(job_operations.get(found)) if found else None


def _show(request: Request, frame: Frame, form: Form) -> Response:
    return show(request, "try_task.html", frame, {"form": form}, status=422 if form.problem else 200)


async def enqueue(request: Request) -> Response:
    visit = get_visit(request)
    identity = visit.require("producer")
    fields = await read_form(request)
    name = read_field(fields, "type")
    _refuse_other_type(identity, name)
    task = visit.board.app.tasks.get(name)
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        given = read_id(fields.get("example", ""))
        example = await transaction.run(job_operations.get(given)) if given else None
    arguments = list_fields(task.describe_payload()) if task else None
    try:
        job = _make_job(visit, identity, fields, example, frame.now, make_timepiece(request, frame.now).zone)
        async with visit.board.database.acting(identity, tenant=job.tenant) as transaction:
            made = await transaction.run(operations.enqueue(job))
    except (Problem, WatchbillError, ValueError) as error:
        detail = error.detail if isinstance(error, Problem) else str(error)
        return _show(request, frame, Form(name, arguments, fields, detail))
    response = RedirectResponse(link(request, f"/job/{made.id}"), 303)
    leave_notice(request, response, "This is the new job. The page shows what becomes of it.")
    return response


def _refuse_other_type(identity: Identity, name: str) -> None:
    if not name or not may_try(identity, name):
        raise Problem(403, f"{identity.name} may not make jobs of type {name[:100] or 'without a name'}.")


def _make_job(
    visit: Visit, identity: Identity, fields: Fields, example: JobRecord | None, now: datetime, zone: tzinfo
) -> NewJob:
    """The job that the form describes. A task that is known here gives it what its code declares."""
    name, queue = fields["type"], read_field(fields, "queue")
    if not may_change(identity, queue, name):
        raise Problem(403, f"{identity.name} may not enqueue in queue {queue}.")
    task = visit.board.app.tasks.get(name)
    if task is not None:
        job = task.new_job(task.check(read_fields(task.describe_payload(), fields)))
    else:
        payload = _read_payload(visit, fields, example, name)
        written = json.dumps(payload, ensure_ascii=False).encode()
        job = NewJob(new_id(), name, written, version=example.version if example and example.type == name else 1)
    return job._replace(
        queue=queue,
        priority=read_priority(fields.get("priority", "")),
        run_at=read_when(fields.get("run_at", ""), now, zone),
        tenant=identity.tenant or fields.get("tenant", "").strip() or DEFAULT_TENANT,
        created_by=identity.name,
    )


def _read_payload(visit: Visit, fields: Fields, example: JobRecord | None, name: str) -> dict[str, Any]:
    """What was hidden of the example, and is left as it was, is taken from it."""
    text = fields.get("payload", "")
    known = example if example is not None and example.type == name else None
    return read_payload(text, known, visit.board.redaction)


ROUTES: list[BaseRoute] = [
    Route("/types/try", show_form, methods=["GET"]),
    Route("/types/try", enqueue, methods=["POST"]),
]

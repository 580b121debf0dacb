"""What a person does to schedules: run now, enable, disable, change the pattern, add."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from watchbill.app.schedule_definition import define, redefine
from watchbill.client import schedule_operations
from watchbill.client.schedule_operations import UnknownTask
from watchbill.dashboard.actions import Fields, Handler, read_back, read_field
from watchbill.dashboard.database import Transaction
from watchbill.dashboard.forms import parse_fields, read_form, read_form_body, read_values
from watchbill.dashboard.identity import Identity
from watchbill.dashboard.layout import read_frame
from watchbill.dashboard.pages.schedules import describe_problem, explain, may_change, read_name
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.rendering import leave_notice, show
from watchbill.dashboard.visit import Visit, get_visit, link
from watchbill.errors import WatchbillError
from watchbill.model.schedule import ScheduleRecord

MOST_CHOSEN = 200
Change = Callable[[Transaction, ScheduleRecord, Fields], Awaitable[str]]


def _change_schedule(change: Change) -> Handler:
    """The handler of a form about one schedule. `change` returns what the next page says."""

    async def handle(request: Request) -> Response:
        visit = get_visit(request)
        identity = visit.require("producer")
        fields = await read_form(request)
        done = await _apply(visit, identity, read_name(fields), change, fields)
        response = RedirectResponse(read_back(request, fields), 303)
        leave_notice(request, response, done)
        return response

    return handle


async def _apply(visit: Visit, identity: Identity, which: tuple[str, str], change: Change, fields: Fields) -> str:
    name, tenant = which
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        found = await transaction.run(schedule_operations.get(name, tenant))
    if not may_change(identity, found):
        raise Problem(403, f"{identity.name} may not change schedule {name}.")
    async with visit.board.database.acting(identity, tenant=_choose_tenant(identity, tenant)) as transaction:
        return await change(transaction, found, fields)


def _choose_tenant(identity: Identity, tenant: str) -> str | None:
    """A producer that sees all tenants acts for the tenant of the schedule."""
    return tenant if identity.role == "producer" else None


async def _run(transaction: Transaction, found: ScheduleRecord, fields: Fields) -> str:
    job = await transaction.run(schedule_operations.run_now(found.name, None, found.tenant))
    return f"{found.name} runs now, as job {job}."


async def _enable(transaction: Transaction, found: ScheduleRecord, fields: Fields) -> str:
    await transaction.run(schedule_operations.enable(found.name, found.tenant))
    return f"{found.name} is enabled: it fires again from its next slot on."


async def _disable(transaction: Transaction, found: ScheduleRecord, fields: Fields) -> str:
    await transaction.run(schedule_operations.disable(found.name, found.tenant))
    return f"{found.name} is disabled: it does not fire until it is enabled. Its jobs continue."


async def _change_pattern(transaction: Transaction, found: ScheduleRecord, fields: Fields) -> str:
    changes: Any = {"pattern": read_field(fields, "pattern"), "tz": fields.get("tz", "").strip() or found.tz}
    definition = redefine(found.name, changes, lambda _: None, found.tz)
    await transaction.run(schedule_operations.update(found.name, definition, found.tenant))
    return f"{found.name} has a new pattern, which counts at once."


def _change_chosen(change: Change, word: str) -> Handler:
    """The handler of a form about the schedules that were ticked in the list."""

    async def handle(request: Request) -> Response:
        visit = get_visit(request)
        identity = visit.require("producer")
        body = await read_form_body(request)
        chosen = read_values(body, "schedule")
        if not 0 < len(chosen) <= MOST_CHOSEN:
            raise Problem(422, "No schedule is chosen." if not chosen else f"At most {MOST_CHOSEN} at once.",
                          hint="Tick schedules in the list.")  # fmt: skip
        for value in chosen:
            tenant, _, name = value.partition("/")
            await _apply(visit, identity, (unquote(name), unquote(tenant)), change, {})
        response = RedirectResponse(read_back(request, parse_fields(body)), 303)
        leave_notice(
            request, response, f"{len(chosen)} {'schedule is' if len(chosen) == 1 else 'schedules are'} {word}."
        )
        return response

    return handle


# -- Add


async def show_form(request: Request) -> Response:
    get_visit(request).require("producer")
    return await _show_form(request, {"tz": "UTC", "payload": "{}", "queue": "default", **request.query_params})


async def _show_form(request: Request, fields: Fields, problem: str | None = None) -> Response:
    visit = get_visit(request)
    async with visit.board.database.acting(visit.require("producer"), read_only=True) as transaction:
        frame = await read_frame(transaction)
        types = [name for (name,) in await transaction.fetch("node_types")]
    pattern = fields.get("pattern", "")
    tried = explain(pattern, fields.get("tz") or "UTC", "default", frame.now) if pattern else None
    values = {"fields": fields, "problem": problem, "types": types[:500], "tried": tried}
    return show(request, "schedule_add.html", frame, values, status=422 if problem else 200)


async def add(request: Request) -> Response:
    visit = get_visit(request)
    identity = visit.require("producer")
    fields = await read_form(request)
    if fields.get("try"):
        return await _show_form(request, fields)
    try:
        definition = _define(visit, identity, fields)
        tenant = definition.get("tenant", "default")
        async with visit.board.database.acting(identity, tenant=_choose_tenant(identity, tenant)) as transaction:
            if visit.board.app.tasks.get(definition["type"]) is None and not fields.get("unchecked"):
                await transaction.run(schedule_operations.ensure_known(definition["type"]))
            added = await transaction.run(schedule_operations.add(definition))
    except UnknownTask as error:
        return await _show_form(request, fields, f"{describe_problem(error)} Tick the box to add it anyway.")
    except (Problem, WatchbillError, ValueError) as error:
        return await _show_form(request, fields, describe_problem(error))
    response = RedirectResponse(link(request, "/schedule", name=added.name, tenant=added.tenant), 303)
    leave_notice(request, response, f"{added.name} is added.")
    return response


def _define(visit: Visit, identity: Identity, fields: Fields) -> dict[str, Any]:
    queue, task = read_field(fields, "queue"), read_field(fields, "task")
    if not identity.may_use(task, queue):
        raise Problem(403, f"{identity.name} may not make jobs of type {task} in queue {queue}.")
    try:
        payload = json.loads(fields.get("payload", "").strip() or "{}")
    except ValueError as error:
        raise Problem(422, f"The payload is not JSON: {error}.") from None
    if not isinstance(payload, dict):
        raise Problem(422, "The payload is not a JSON object.")
    rule: Any = {"task": task, "arguments": payload, "queue": queue, "created_by": identity.name}
    rule |= {"every": fields["every"].strip()} if fields.get("every", "").strip() else {}
    if fields.get("description", "").strip():
        rule["description"] = fields["description"].strip()[:500]
    pattern = fields.get("pattern", "").strip() or None
    tenant = identity.tenant or fields.get("tenant", "").strip() or "default"
    zone = fields.get("tz", "").strip() or "UTC"
    return define(read_field(fields, "name"), pattern, rule, visit.board.app.tasks.get, tenant, zone)


ROUTES: list[BaseRoute] = [
    Route("/schedules/add", show_form, methods=["GET"]),
    Route("/schedules/add", add, methods=["POST"]),
    Route("/schedules/enable", _change_chosen(_enable, "enabled"), methods=["POST"]),
    Route("/schedules/disable", _change_chosen(_disable, "disabled"), methods=["POST"]),
    Route("/schedule/run", _change_schedule(_run), methods=["POST"]),
    Route("/schedule/enable", _change_schedule(_enable), methods=["POST"]),
    Route("/schedule/disable", _change_schedule(_disable), methods=["POST"]),
    Route("/schedule/change", _change_schedule(_change_pattern), methods=["POST"]),
]

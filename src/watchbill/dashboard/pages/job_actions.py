"""What a person does to one job: retry, run at, cancel, release, wake, and copy with changes."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, time, timedelta, tzinfo
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from watchbill.app.json_round_trip import find_unstorable
from watchbill.client import job_operations, operations
from watchbill.dashboard.actions import Fields, Handler, read_back, read_field
from watchbill.dashboard.database import Transaction
from watchbill.dashboard.forms import read_form
from watchbill.dashboard.identity import Identity, Role
from watchbill.dashboard.json_text import write_json
from watchbill.dashboard.layout import Frame, read_frame
from watchbill.dashboard.pages.job import may_change
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.rendering import leave_notice, make_timepiece, show
from watchbill.dashboard.visit import Visit, get_visit, link
from watchbill.errors import WatchbillError
from watchbill.model import durations
from watchbill.model.ids import new_id, read_id
from watchbill.model.job import JobRecord, NewJob
from watchbill.redaction import Redaction


class Asked(NamedTuple):
    """Who asks for the change of a job, and with which fields. `when` is what the field run_at means."""

    identity: Identity
    fields: Fields
    when: datetime | None


ChangeJob = Callable[[Transaction, JobRecord, Asked], Awaitable[str]]
_MOST_PRIORITY = 32_767


def _change_job(role: Role, change: ChangeJob) -> Handler:
    """The handler of a form about one job. `change` returns what the next page says."""

    async def handle(request: Request) -> Response:
        visit = get_visit(request)
        identity = visit.require(role)
        fields = await read_form(request)
        frame, job = await _read_job(visit, identity, read_field(fields, "id"))
        when = read_when(fields.get("run_at", ""), frame.now, make_timepiece(request, frame.now).zone)
        async with _acting(visit, identity, job) as transaction:
            done = await change(transaction, job, Asked(identity, fields, when))
        back = fields.get("back") or f"/job/{job.id}"
        response = RedirectResponse(read_back(request, {"back": back}), 303)
        leave_notice(request, response, done)
        return response

    return handle


def _acting(visit: Visit, identity: Identity, job: JobRecord) -> Any:
    """A producer that sees all tenants acts for the tenant of the job."""
    tenant = job.tenant if identity.role == "producer" else None
    return visit.board.database.acting(identity, tenant=tenant)


async def _read_job(visit: Visit, identity: Identity, text: str) -> tuple[Frame, JobRecord]:
    """The job, if it is one of those that the caller may change."""
    job_id = read_id(text)
    if job_id is None:
        raise Problem(422, f"{text[:100]!r} is not the id of a job.")
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame, job = await read_frame(transaction), await transaction.run(job_operations.get(job_id))
    if not may_change(identity, job.queue, job.type):
        raise Problem(403, f"{identity.name} may not change jobs of type {job.type} in queue {job.queue}.")
    return frame, job


def read_when(text: str, now: datetime, zone: tzinfo) -> datetime | None:
    """An instant as people write it: `30m` from now, `14:00` (the next one), `2026-03-29 14:00` on the clock of the
    page. None for an empty text."""
    text = text.strip().removeprefix("+").removeprefix("in ")
    if not text:
        return None
    local = now.astimezone(zone)
    try:
        if ":" in text and len(text) <= len("hh:mm:ss"):
            moment = datetime.combine(local.date(), time.fromisoformat(text.zfill(5)), zone)
            return moment if moment > now else moment + timedelta(days=1)
        if "-" not in text:
            return now + timedelta(seconds=durations.seconds(text))
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo else moment.replace(tzinfo=zone)
    except (ValueError, OverflowError):
        raise Problem(
            422, f"{text[:60]!r} is not a time.", hint="Write 30m, 14:00 or 2026-03-29 14:00."
        ) from None  # fmt: skip


async def _retry(transaction: Transaction, job: JobRecord, asked: Asked) -> str:
    before = await transaction.run(job_operations.retry(job.id, run_at=asked.when))
    if asked.when is None:
        return f"The job is queued again; it was {before}."
    return f"The job is due at {asked.when:%Y-%m-%d %H:%M:%S %Z}."


async def _cancel(transaction: Transaction, job: JobRecord, asked: Asked) -> str:
    reason = asked.fields.get("reason", "").strip()[:500] or None
    is_forced = asked.fields.get("force") == "yes"
    if is_forced and not asked.identity.may("admin"):
        raise Problem(403, "Only an admin ends a running job at once.")
    state = await transaction.run(job_operations.cancel(job.id, reason=reason, force=is_forced))
    return {"canceled": "The job is canceled.", "running": "The job is asked to stop."}.get(
        state, f"The job was not canceled: it is {state} already."
    )


async def _release(transaction: Transaction, job: JobRecord, asked: Asked) -> str:
    released = await transaction.run(job_operations.release(job.id))
    return "The job is taken from its node and queued again." if released else "The job was not running."


async def _wake(transaction: Transaction, job: JobRecord, asked: Asked) -> str:
    return "The job goes on." if await transaction.run(job_operations.wake(job.id)) else "The job was not suspended."


_ANSWERS = {
    "woken": "The job has your answer, and goes on.",
    "stored": "The job has your answer, and reads it when it comes to that step.",
    "duplicate": "That was answered already; the first answer counts.",
    "finished": "The job has ended, so the answer was not stored.",
}


async def _signal(transaction: Transaction, job: JobRecord, asked: Asked) -> str:
    """Sends the answer of a form. Its key lets the first answer to a step count."""
    fields = asked.fields
    name, step = read_field(fields, "name"), read_field(fields, "step")
    answer = await transaction.run(job_operations.signal(job.id, name, _read_answer(fields), key=f"page/{step}"[:200]))
    return _ANSWERS[answer]


def _read_answer(fields: Fields) -> Any:
    """`{"verdict": "yes", "note": ...}`, or what was written as JSON."""
    if fields.get("verdict") in ("yes", "no"):
        note = fields.get("note", "").strip()[:1000]
        return {"verdict": fields["verdict"]} | ({"note": note} if note else {})
    text = fields.get("payload", "").strip() or "null"
    try:
        answer = json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        raise Problem(422, f"The answer is not JSON: {error}.", hint='Write {"verdict": "yes"}.') from None
    for path, why in find_unstorable(answer, ""):
        raise Problem(422, f"The answer cannot be stored: {path} is invalid: {why}.")
    return answer


async def _retry_from(transaction: Transaction, job: JobRecord, asked: Asked) -> str:
    step = read_field(asked.fields, "step")
    await transaction.run(job_operations.retry(job.id, from_step=step))
    return f"The job runs again from step {step} on."


# -- Copy and change


async def show_copy(request: Request) -> Response:
    """A form with the payload of a job, to enqueue another one like it."""
    visit = get_visit(request)
    identity = visit.require("producer")
    frame, job = await _read_job(visit, identity, request.query_params.get("id", ""))
    payload = write_json(visit.board.redaction.hide("payload", job.payload, type=job.type))
    fields = {"payload": payload, "queue": job.queue, "priority": str(job.priority), "run_at": ""}
    return _show_copy(request, frame, job, fields)


def _show_copy(
    request: Request, frame: Frame, job: JobRecord, fields: Mapping[str, str], problem: str | None = None
) -> Response:
    values = {"job": job, "fields": fields, "problem": problem}
    return show(request, "copy.html", frame, values, status=422 if problem else 200)


async def enqueue_copy(request: Request) -> Response:
    visit = get_visit(request)
    identity = visit.require("producer")
    fields = await read_form(request)
    frame, job = await _read_job(visit, identity, read_field(fields, "id"))
    try:
        new = _make_copy(visit, identity, job, fields, frame, make_timepiece(request, frame.now).zone)
        async with _acting(visit, identity, job) as transaction:
            made = await transaction.run(operations.enqueue(new))
    except (Problem, WatchbillError, ValueError) as error:
        detail = error.detail if isinstance(error, Problem) else str(error)
        return _show_copy(request, frame, job, fields, detail)
    response = RedirectResponse(link(request, f"/job/{made.id}"), 303)
    leave_notice(request, response, f"This is a new job, made from {job.id}.")
    return response


def _make_copy(visit: Visit, identity: Identity, job: JobRecord, fields: Fields, frame: Frame, zone: tzinfo) -> NewJob:
    queue = read_field(fields, "queue")
    if not may_change(identity, queue, job.type):
        raise Problem(403, f"{identity.name} may not enqueue in queue {queue}.")
    payload = read_payload(fields.get("payload", ""), job, visit.board.redaction)
    task = visit.board.app.tasks.get(job.type)
    return NewJob(
        new_id(),
        job.type,
        json.dumps(payload, ensure_ascii=False).encode() if task is None else task.check(payload),
        queue=queue,
        priority=read_priority(fields.get("priority", "")),
        run_at=read_when(fields.get("run_at", ""), frame.now, zone),
        tenant=job.tenant,
        max_attempts=job.max_attempts,
        timeout=job.timeout,
        version=job.version,
        created_by=identity.name,
    )


def read_payload(text: str, job: JobRecord | None, redaction: Redaction) -> dict[str, Any]:
    """The payload of a form. A value that the form showed as hidden, and that has not changed, is that of the job from
    which the form was made, if there is one."""
    try:
        given = json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        raise Problem(422, f"The payload is not JSON: {error}.") from None
    if not isinstance(given, dict):
        raise Problem(422, "The payload is not a JSON object.", hint='Write {"name": "value"}.')
    whole: dict[str, Any] = given
    if job is not None:
        whole = _restore(given, redaction.hide("payload", job.payload, type=job.type), job.payload)
    for path, why in find_unstorable(whole, ""):
        raise Problem(422, f"The payload cannot be stored: {path} is invalid: {why}.")
    return whole


def read_priority(text: str) -> int:
    text = text.strip() or "0"
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 10) or abs(int(text)) > _MOST_PRIORITY:
        raise Problem(422, f"The priority {text[:20]!r} is not a whole number from -32767 to 32767.")
    return int(text)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"JSON has no {name}")


def _restore(given: Any, shown: Any, original: Any) -> Any:
    if given == shown:
        return original
    if isinstance(given, dict) and isinstance(shown, dict) and isinstance(original, dict):
        return {
            name: _restore(value, shown[name], original[name]) if name in shown and name in original else value
            for name, value in given.items()
        }
    if isinstance(given, list) and isinstance(shown, list) and isinstance(original, list):
        rest = given[len(shown) :]
        return [_restore(*each) for each in zip(given, shown, original, strict=False)] + rest
    return given


ROUTES: list[BaseRoute] = [
    Route("/copy", show_copy, methods=["GET"]),
    Route("/copy", enqueue_copy, methods=["POST"]),
    Route("/job/retry", _change_job("producer", _retry), methods=["POST"]),
    Route("/job/cancel", _change_job("producer", _cancel), methods=["POST"]),
    Route("/job/release", _change_job("operator", _release), methods=["POST"]),
    Route("/job/wake", _change_job("operator", _wake), methods=["POST"]),
    Route("/job/signal", _change_job("producer", _signal), methods=["POST"]),
    Route("/job/retry_from", _change_job("operator", _retry_from), methods=["POST"]),
]

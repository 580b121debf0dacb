"""One job: why it waits and what helps, its life as a line, its attempts, payload, result, graph, steps and audit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from watchbill.client import job_operations
from watchbill.dashboard import charts
from watchbill.dashboard.database import Transaction
from watchbill.dashboard.identity import Identity
from watchbill.dashboard.json_text import MOST_SHOWN_BYTES, measure, show_json, write_json
from watchbill.dashboard.layout import read_frame
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.rendering import make_timepiece, show
from watchbill.dashboard.tracebacks import Line, fold_traceback
from watchbill.dashboard.visit import get_visit, link
from watchbill.dashboard.words import write_duration
from watchbill.errors import name_commands
from watchbill.model.dependency_graph import DependencyGraph
from watchbill.model.ids import read_id
from watchbill.model.job import JobReason, JobRecord
from watchbill.model.states import FINISHED
from watchbill.model.steps import StepRecord
from watchbill.redaction import Redaction

MOST_AUDITED, MOST_GRAPH_JOBS = 20, 1000
_STATE_OF_OUTCOME = {
    "skipped": "succeeded", "timed_out": "failed", "snoozed": "queued", "released": "queued", "suspended": "queued",
}  # fmt: skip
_FIRST_RANK_OF_TURNS = 11  # from here on a cause is about the turn of the job, when others have ended
_RANK_OF_LONG_DELAY = 4


@dataclass(frozen=True)
class AttemptLine:
    """An attempt, as the page shows it. `due_at` is when it could have begun."""

    run: int
    attempt: int
    outcome: str
    node: str | None
    started_at: datetime | None
    ended_at: datetime | None
    due_at: datetime | None
    failure: int | None
    error: str | None = None
    traceback: Sequence[Line] = ()
    whole: str | None = None


@dataclass(frozen=True)
class WayOut:
    """What helps, as a button. `path` is that of a form; a page has an `address`."""

    label: str
    path: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)
    address: str = ""
    role: str = "operator"


async def show_job(request: Request) -> Response:
    visit = get_visit(request)
    identity = visit.require("reader")
    job_id = find_id(request)
    redaction = visit.board.redaction
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        job = await transaction.run(job_operations.get(job_id))
        reasons = await transaction.run(job_operations.why(job_id))
        attempts = await read_attempts(transaction, job, redaction)
        near = await transaction.run(job_operations.adjacent(job_id))
        graph = None
        if near:
            graph = await transaction.run(job_operations.dependency_graph(job_id, largest=MOST_GRAPH_JOBS))
        steps = await transaction.run(job_operations.steps(job_id)) if job.run else []
        alike = await transaction.fetch("web_alike", (job_id,))
        audit = await transaction.run(job_operations.audit(subject=f"job {job.id}", limit=MOST_AUDITED))
    timepiece = make_timepiece(request, frame.now)
    now = frame.now
    values = {
        "job": job,
        "kind": job.waits if job.waits not in (None, "ready") else job.state,
        "deciding": timepiece.rewrite(_hide_reason(reasons[0], job, redaction)),
        "others": [
            (_is_later(reasons[0], each), timepiece.rewrite(_hide_reason(each, job, redaction))) for each in reasons[1:]
        ],
        "way_out": None if any(map(is_question, steps)) else find_way_out(request, job, reasons[0]),
        "command": name_commands(f"watchbill jobs why {job.id}"),
        "attempts": attempts,
        "alike": alike[0][1] if alike else None,
        "line": _draw_life(job, attempts, now, timepiece.zone),
        "waited": _measure_waits(job, attempts, now),
        "ran": sum(((each.ended_at or now) - each.started_at).total_seconds() for each in attempts if each.started_at),
        "payload": show_json(redaction.hide("payload", job.payload, type=job.type)),
        "payload_size": measure(job.payload),
        "result": _show_part(job, "result", redaction),
        "progress": _show_part(job, "progress", redaction),
        "meta": _show_part(job, "meta", redaction),
        "graph": _draw_graph(request, graph, job) if graph else None,
        "graph_size": len(graph.jobs) if graph else 0,
        "steps": [_hide_step(each, job, redaction) for each in steps],
        "step_chart": _draw_steps(steps, now, timepiece.zone),
        "questions": [_show_question(each, job, redaction) for each in steps if is_question(each)],
        "audit": audit,
        "is_over": job.state in FINISHED,
        "trace_address": _find_trace(visit.board.look.trace_url, job),
        "schema": transaction.queries.schema,
        "most_shown": MOST_SHOWN_BYTES,
        "may_change": may_change(identity, job.queue, job.type),
    }
    return show(request, "job.html", frame, values)


async def download_part(request: Request) -> Response:
    """The payload, the result or meta of a job as a text file, without what is hidden."""
    visit = get_visit(request)
    identity = visit.require("reader")
    part = request.path_params["part"]
    if part not in ("payload", "result", "meta", "progress"):
        raise Problem(404, "A job has no such part.", hint="The parts are payload, result, progress and meta.")
    job_id = find_id(request)
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        job = await transaction.run(job_operations.get(job_id))
    text = write_json(visit.board.redaction.hide(part, getattr(job, part), type=job.type))
    return PlainTextResponse(text, headers={"Content-Disposition": f'attachment; filename="{part}-{job.id}.txt"'})


def find_id(request: Request) -> UUID:
    found = read_id(request.path_params["id"])
    if found is None:
        raise Problem(404, f"{request.path_params['id'][:100]!r} is not the id of a job.", hint="An id is a UUID.")
    return found


def may_change(identity: Identity, queue: str, type: str) -> bool:
    """Whether it may retry, cancel and copy a job of this queue and type."""
    return identity.may("producer") and identity.may_use(type, queue)


# -- Why


def _is_later(deciding: JobReason, other: JobReason) -> bool:
    return deciding.rank == _RANK_OF_LONG_DELAY or other.rank >= _FIRST_RANK_OF_TURNS


def _hide_reason(reason: JobReason, job: JobRecord, redaction: Redaction) -> str:
    """The sentence, without the message of an error that is hidden."""
    text = reason.reason
    for error in (job.error, reason.detail.get("error")):
        message = error.get("message") if isinstance(error, dict) else error
        if isinstance(message, str) and message:
            hidden = redaction.hide("error", {"message": message}, type=job.type)
            text = text.replace(message, str(hidden["message"]) if isinstance(hidden, dict) else str(hidden))
    text = redaction.hide_text(text)
    return f"{text[:1].upper()}{text[1:]}"


def find_way_out(request: Request, job: JobRecord, reason: JobReason) -> WayOut | None:
    """The button for what the deciding cause names; None if nothing helps, or a person need do nothing."""
    job_fields = {"id": str(job.id)}
    detail = reason.detail
    match reason.cause:
        case "paused":
            fields = {name: str(detail[name]) for name in ("queue", "type") if detail.get(name)}
            return WayOut(f"Resume {' in '.join(reversed(fields.values()))[:40]}", "/queue/resume", fields)
        case "delayed" | "late":
            return WayOut(
                "Retry now" if job.state == "failed" else "Run now", "/job/retry", job_fields, role="producer"
            )
        case "finished" if job.state in ("dead", "canceled"):
            return WayOut("Retry", "/job/retry", job_fields, role="producer")
        case "suspended":
            return WayOut("Wake", "/job/wake", job_fields)
        case "blocked" if detail.get("first"):
            return WayOut("Open the first of them", address=link(request, f"/job/{detail['first']}"), role="reader")
        case "limited" | "ordered":
            return WayOut("Open limits", address=link(request, "/limits"), role="reader")
        case "no_node" | "unserved" | "unsupported" | "unmatched" | "full" | "wrong_lane":
            return WayOut("Open nodes", address=link(request, "/nodes"), role="reader")
        case "unowned" | "no_match":
            return WayOut("Open cluster", address=link(request, "/cluster"), role="reader")
    return None


# -- Attempts


async def read_attempts(transaction: Transaction, job: JobRecord, redaction: Redaction) -> list[AttemptLine]:
    """The attempts from the first to the last, and the one that runs now."""
    rows = await transaction.fetch("web_attempts", (job.id,))
    found = []
    for run, attempt, outcome, node, started_at, ended_at, due_at, failure, error in rows:
        line, traceback = _show_error(redaction.hide_error(error, type=job.type))
        folded = fold_traceback(traceback) if traceback else []
        found.append(
            AttemptLine(run, attempt, outcome, node, started_at, ended_at, due_at, failure, line, folded, traceback)
        )
    if job.state == "running":
        started = job.started_at or job.claimed_at
        found.append(AttemptLine(job.run, job.attempt + 1, "running", job.holder, started, None, job.run_at, None))
    return found


def _show_error(error: Any) -> tuple[str | None, str | None]:
    """One line, and the traceback, of an error as it is stored with an attempt."""
    if not isinstance(error, dict):
        return (None, None) if error is None else (str(error), None)
    kind, message = error.get("type") or error.get("kind"), error.get("message")
    line = str(kind) if message in (None, "", kind) else f"{kind}: {message}"
    return line, str(error["traceback"]) if error.get("traceback") else None


def _draw_life(job: JobRecord, attempts: Sequence[AttemptLine], now: datetime, zone: Any) -> Any:
    begun = [each for each in attempts if each.started_at is not None]
    drawn = []
    before = job.created_at
    for each in begun:
        assert each.started_at is not None
        ready = max(min(each.due_at or before, each.started_at), before)
        state = _STATE_OF_OUTCOME.get(each.outcome, each.outcome)
        if each is begun[-1] and job.state == "dead":
            state = "dead"
        drawn.append(charts.Attempt(each.run, ready, each.started_at, each.ended_at, state, each.node))
        before = each.ended_at or each.started_at
    next_at = job.run_at if job.state in ("queued", "failed") and job.run_at > now else None
    if not drawn and next_at is None and job.state in FINISHED:
        return None
    return charts.attempt_line("Timeline", charts.Life(job.created_at, drawn, now, next_at, zone))


def _measure_waits(job: JobRecord, attempts: Sequence[AttemptLine], now: datetime) -> float:
    """How long it has waited although it was due, before all attempts and now, in seconds."""
    waits = [(each.started_at - each.due_at).total_seconds() for each in attempts if each.started_at and each.due_at]
    if job.state in ("queued", "failed"):
        waits.append((now - job.run_at).total_seconds())
    return sum(max(wait, 0.0) for wait in waits)


# -- Values


def _show_part(job: JobRecord, part: str, redaction: Redaction) -> tuple[Any, int] | None:
    """A value as markup (None: it is too long) and its size; None if there is no such value."""
    value = getattr(job, part)
    if value is None:
        return None
    return show_json(redaction.hide(part, value, type=job.type)), measure(value)


def _hide_step(step: StepRecord, job: JobRecord, redaction: Redaction) -> tuple[StepRecord, Any, str | None]:
    result = None if step.result is None else show_json(redaction.hide("result", step.result, type=job.type))
    return step, result, _show_error(redaction.hide_error(step.error, type=job.type))[0]


def is_question(step: StepRecord) -> bool:
    """Whether it waits for a signal, which a person may send."""
    return step.state == "waiting" and bool(step.signals)


def _show_question(step: StepRecord, job: JobRecord, redaction: Redaction) -> tuple[StepRecord, Any]:
    """The step, and what the people who answer have to know."""
    return step, None if step.ask is None else show_json(redaction.hide("payload", step.ask, type=job.type))


_STEP_LOOKS = {
    "done": ("succeeded", "succeeded"), "failed": ("dead", "dead"), "raised": ("failed", "dead"),
    "timed_out": ("failed", "clock"), "waiting": ("paused", "paused"), "retrying": ("failed", "failed"),
    "begun": ("running", "running"),
}  # fmt: skip


def _draw_steps(steps: Sequence[StepRecord], now: datetime, zone: Any) -> Any:
    """When each step ran or waited; None if no step has begun."""
    lanes = []
    for step in steps:
        if step.started_at is None:
            continue
        state, icon = _STEP_LOOKS.get(step.state, ("queued", "queued"))
        length = write_duration(((step.ended_at or now) - step.started_at).total_seconds())
        tries = f", {step.tries} tries" if step.tries > 1 else ""
        waits = step.kind in ("sleep", "signal", "jobs")
        note = f"{length}{tries}" if step.ended_at else f"{step.state} for {length}{tries}"
        lanes.append(charts.StepLane(step.name, state, icon, step.started_at, step.ended_at, waits, note, step.wake_at))
    return charts.step_lanes("Steps", lanes, now, zone) if lanes else None


def _draw_graph(request: Request, graph: DependencyGraph, job: JobRecord) -> Any:
    nodes = [
        charts.Node(
            str(each.id), each.type, each.state, "this job" if each.id == job.id else each.state,
            None if each.id == job.id else link(request, f"/job/{each.id}"),
        )
        for each in graph.jobs
    ]  # fmt: skip
    edges = [(str(each.parent), str(each.child)) for each in graph.dependencies]
    return charts.dependency_graph("Graph", nodes, edges, me=str(job.id))


def _find_trace(trace_url: str | None, job: JobRecord) -> str | None:
    """The address of its trace, if the installation has told where traces are and the job belongs to one."""
    carrier = (job.meta or {}).get("trace")
    parent = carrier.get("traceparent") if isinstance(carrier, dict) else None
    parts = parent.split("-") if isinstance(parent, str) else []
    if trace_url is None or len(parts) != 4 or not all(each in "0123456789abcdef" for each in parts[1]):
        return None
    return trace_url.replace("{trace_id}", parts[1])


ROUTES: list[BaseRoute] = [
    Route("/job/{id}", show_job, methods=["GET"]),
    Route("/job/{id}/{part}", download_part, methods=["GET"]),
]

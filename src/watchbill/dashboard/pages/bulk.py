"""Changing many jobs: the chosen ones, or all that match a filter. A page first says which jobs these are, and asks;
then a bulk operation starts, which nodes work off."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast, get_args

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from watchbill.client import bulk_operations, job_operations
from watchbill.dashboard.actions import read_back, read_field
from watchbill.dashboard.database import Transaction
from watchbill.dashboard.forms import parse_fields, read_form_body, read_values
from watchbill.dashboard.layout import Frame, read_frame
from watchbill.dashboard.pages.jobs import write_command
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.rendering import leave_notice, show
from watchbill.dashboard.searches import read_search
from watchbill.dashboard.visit import Visit, get_visit
from watchbill.filters.condition import Condition, write_conditions
from watchbill.model.bulk_operation import USUAL_STATES, BulkOperation, ChangeKind, OperationKind, OperationPreview
from watchbill.model.ids import read_id
from watchbill.model.states import STATES

MOST_CHOSEN = 100  # a condition has at most so many values
MOST_WITHOUT_NUMBER = 1000  # to change more jobs, or to purge, a person types how many there are
MOST_DONE_AT_ONCE = 200  # so few jobs this process changes itself, without waiting for a node
RATES = (("as fast as it goes", ""), ("10 per s", "10"), ("50 per s", "50"), ("200 per s", "200"))


@dataclass(frozen=True)
class Words:
    """How a kind is called: the verb of the button, what is said afterwards, its command, and what it needs."""

    verb: str
    done: str
    command: str
    argument: str | None = None


WORDS: Mapping[OperationKind, Words] = {
    "retry": Words("Retry", "queued again", "jobs retry"),
    "cancel": Words("Cancel", "canceled or asked to stop", "jobs cancel"),
    "release": Words("Release", "queued again", "jobs release"),
    "purge": Words("Purge", "deleted", "jobs purge"),
    "set_priority": Words("Change the priority of", "changed", "jobs prioritize", "priority"),
    "move_queue": Words("Move", "moved", "jobs move", "queue"),
}


@dataclass(frozen=True)
class Wanted:
    """What a form asks for. `ids` are those of chosen jobs; without them, it is all that match the filter."""

    kind: ChangeKind
    filter: str
    ids: Sequence[str]
    conditions: Sequence[Condition]
    max_jobs: int | None

    is_probe: bool = False

    @property
    def words(self) -> Words:
        return WORDS[self.kind]

    @property
    def text(self) -> str:
        """The filter, for people and for the command."""
        return f"id:{','.join(self.ids)}" if self.ids else self.filter


async def show_preview(request: Request) -> Response:
    """Says which jobs would be changed."""
    visit = get_visit(request)
    identity = visit.require("operator")
    fields, ids = await _read_bulk_form(request)
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        wanted = _read_wanted(visit, frame, fields, ids)
        found = await transaction.run(bulk_operations.preview(wanted.kind, wanted.conditions, wanted.max_jobs))
    return _show_question(request, frame, wanted, found, fields)


def _show_question(
    request: Request,
    frame: Frame,
    wanted: Wanted,
    found: OperationPreview,
    fields: Mapping[str, str],
    problem: str | None = None,
) -> Response:
    argument = {"priority": "--priority 5", "queue": "--to QUEUE"}.get(wanted.words.argument or "")
    values = {
        "wanted": wanted,
        "found": found,
        "fields": fields,
        "problem": problem,
        "needs_number": _needs_number(wanted.kind, found),
        "rates": RATES,
        "leave_address": read_back(request, fields),
        "key": secrets.token_hex(16),
        "command": write_command(wanted.words.command, wanted.text, *([argument] if argument else [])),
    }
    return show(request, "bulk.html", frame, values, status=422 if problem else 200)


def _needs_number(kind: ChangeKind, found: OperationPreview) -> bool:
    return kind == "purge" or not found.is_complete or found.jobs > MOST_WITHOUT_NUMBER


async def start(request: Request) -> Response:
    """Starts the operation. A form that asks for the number of jobs is shown again if the number is another one."""
    visit = get_visit(request)
    identity = visit.require("operator")
    fields, ids = await _read_bulk_form(request)
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        wanted = _read_wanted(visit, frame, fields, ids)
        found = await transaction.run(bulk_operations.preview(wanted.kind, wanted.conditions, wanted.max_jobs))
        wanted = await _name_probe(transaction, wanted)
    typed = "".join(each for each in fields.get("number", "") if each.isdigit())
    if _needs_number(wanted.kind, found) and typed != str(found.jobs):
        problem = f"Type the number of jobs, {found.jobs:,}, to go on. Nothing was changed."
        return _show_question(request, frame, wanted, found, fields, problem)
    async with visit.board.database.acting(identity) as transaction:
        operation = await transaction.run(
            bulk_operations.start(
                wanted.kind,
                wanted.conditions,
                text=wanted.text,
                arguments=_read_arguments(wanted.words, fields)
                | ({"filter": wanted.filter} if wanted.is_probe else {}),
                rate=_read_rate(fields.get("rate", "")),
                max_jobs=wanted.max_jobs,
                idempotency_key=fields.get("key", "")[:100] or None,
            )
        )
    async with visit.board.database.acting(identity) as transaction:
        if found.is_complete and found.jobs <= MOST_DONE_AT_ONCE:
            await transaction.run(bulk_operations.run_step(operation))
        now = await transaction.run(bulk_operations.get(operation))
    response = RedirectResponse(read_back(request, fields), 303)
    leave_notice(request, response, describe(now))
    return response


def describe(operation: BulkOperation) -> str:
    """What the next page says of an operation that was started."""
    words = WORDS[operation.kind]
    if not operation.is_over:
        return f"Operation {operation.id} has begun: nodes change the jobs, {operation.done:,} so far."
    said = f"{operation.done:,} {'job' if operation.done == 1 else 'jobs'} {words.done}."
    left = "; ".join(f"{count:,} not, because {reason}" for reason, count in operation.reasons.items())
    return f"{said} {left}." if left else said


async def _read_bulk_form(request: Request) -> tuple[dict[str, str], list[str]]:
    body = await read_form_body(request)
    fields = parse_fields(body)
    chosen = [] if fields.get("scope") == "all" else read_values(body, "id")
    return fields, [each for value in chosen for each in value.split(",") if each]


def _read_wanted(visit: Visit, frame: Frame, fields: Mapping[str, str], ids: Sequence[str]) -> Wanted:
    kind = read_field(fields, "kind")
    if kind not in get_args(ChangeKind):
        raise Problem(422, f"There is no change {kind!r}.")
    chosen = cast("ChangeKind", kind)
    text = fields.get("q", "").strip()
    most = _read_count(fields.get("most", ""))
    if ids:
        return Wanted(chosen, text, ids, _name_jobs(ids), most)
    if fields.get("scope") != "all":
        raise Problem(422, "No job is chosen.", hint="Tick jobs in the list, or take all that match.")
    conditions = read_search(text, visit.board.redaction, frame.now)
    if not conditions:
        raise Problem(422, "The filter is empty.", hint="Say which jobs, such as queue:mail.")
    return Wanted(chosen, text, (), conditions, most)


def _name_jobs(ids: Sequence[str]) -> list[Condition]:
    """These jobs in whatever state they are, so that the page can say which of them cannot be changed."""
    if len(ids) > MOST_CHOSEN:
        raise Problem(422, f"{len(ids)} jobs are chosen, and {MOST_CHOSEN} are the most.", hint="Use a filter.")
    found = [read_id(each) for each in ids]
    if None in found:
        raise Problem(422, "A chosen id is not the id of a job.")
    bounds = tuple([str(each), str(each)] for each in found)
    return [Condition("id", "=", bounds), Condition("state", "=", STATES)]


async def _name_probe(transaction: Transaction, wanted: Wanted) -> Wanted:
    """A probe names its jobs, so that a page can say what became of them."""
    if wanted.ids or wanted.max_jobs is None or wanted.max_jobs > MOST_CHOSEN:
        return wanted
    states = Condition("state", "=", USUAL_STATES[wanted.kind])
    page = await transaction.run(
        job_operations.read_page(write_conditions([*wanted.conditions, states]), limit=wanted.max_jobs)
    )
    ids = [str(job.id) for job in page.jobs]
    return replace(wanted, ids=ids, conditions=_name_jobs(ids), is_probe=True) if ids else wanted


def _read_arguments(words: Words, fields: Mapping[str, str]) -> dict[str, Any]:
    if words.argument is None:
        reason = fields.get("reason", "").strip()[:500]
        return {"reason": reason} if reason else {}
    value = read_field(fields, words.argument)
    if words.argument == "queue":
        return {"queue": value}
    number = _read_whole_number(value)
    if number is None:
        raise Problem(422, f"The priority {value[:20]!r} is not a whole number.", hint="Give one such as 5 or -5.")
    return {"priority": number}


def _read_whole_number(text: str) -> int | None:
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(digits) < 10 else None


def _read_count(text: str) -> int | None:
    count = _read_whole_number(text)
    return count if count is not None and count > 0 else None


def _read_rate(text: str) -> float | None:
    rate = _read_whole_number(text)
    return float(rate) if rate is not None and rate > 0 else None


ROUTES: list[BaseRoute] = [
    Route("/jobs/preview", show_preview, methods=["POST"]),
    Route("/jobs/change", start, methods=["POST"]),
]

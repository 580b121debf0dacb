"""The list of jobs: a filter, tabs of states, pages of what matches, and saved filters. Nothing is counted: a page
looks at a limited number of jobs, and says how far it got."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from watchbill.client import figure_operations, job_operations, key_operations
from watchbill.dashboard.actions import read_back, read_field
from watchbill.dashboard.database import Database, Transaction
from watchbill.dashboard.forms import read_form
from watchbill.dashboard.identity import Identity
from watchbill.dashboard.json_text import write_line
from watchbill.dashboard.layout import Frame, read_frame
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.rendering import leave_notice, show
from watchbill.dashboard.searches import HiddenSearch, read_search
from watchbill.dashboard.visit import get_visit, link
from watchbill.errors import name_commands
from watchbill.filters.condition import Condition, FilterError, write_conditions
from watchbill.filters.fields import FIELDS
from watchbill.filters.parser import MOST_CHARACTERS, split_terms
from watchbill.model.figures import Sample
from watchbill.model.ids import read_id
from watchbill.model.job_page import JobPage, ListedJob
from watchbill.model.states import STATES, WAITS
from watchbill.redaction import Redaction

PAGE = "/jobs"
MOST_ROWS = 50
LOOK_SECONDS = 0.4  # a page goes on looking for matches so long before it says how far it got
COLUMNS = ("queue", "tenant", "wait", "run", "node", "payload")  # which a person may leave out
_MOST_SAVED = 100
_SUGGESTED = ("state:", "type:", "queue:", "node:", "error:", "schedule:")
_STATE_FIELDS = ("state:", "-state:", "waits:", "-waits:")
_SAMPLE_SECONDS = 60


@dataclass(frozen=True)
class Row:
    """A job of the list. `payload` is its text, or None if it is too long; `alike` counts attempts that failed so."""

    job: ListedJob
    error: str | None
    payload: str | None
    size: int | None
    failure: int | None
    alike: int | None

    @property
    def kind(self) -> str:
        """The word for its state: what it waits for, if that says more."""
        return self.job.waits if self.job.waits not in (None, "ready") else self.job.state


@dataclass(frozen=True)
class Search:
    """A filter as it was written, and what is wrong with it."""

    text: str
    conditions: Sequence[Condition] = ()
    problem: str | None = None
    hint: str | None = None
    column: int | None = None

    @property
    def terms(self) -> list[tuple[str, str]]:
        """Each term, and the filter without it."""
        found = split_terms(self.text)
        return [(term, " ".join(found[:place] + found[place + 1 :])) for place, term in enumerate(found)]

    @property
    def state(self) -> str | None:
        """The state to which the filter is limited; None if it names none, or several."""
        named = [term for term in split_terms(self.text) if term.startswith(_STATE_FIELDS)]
        return named[0].partition(":")[2] if len(named) == 1 and not named[0].startswith("-") else None

    @property
    def names_state(self) -> bool:
        return any(term.startswith(_STATE_FIELDS) for term in split_terms(self.text))

    def with_state(self, state: str | None) -> str:
        kept = [term for term in split_terms(self.text) if not term.startswith(_STATE_FIELDS)]
        return " ".join([f"state:{state}", *kept] if state else kept)

    @property
    def pointer(self) -> str | None:
        """The filter with a mark below the column that is wrong."""
        if self.column is None or not self.text.isprintable():
            return None
        return f"{self.text}\n{' ' * (self.column - 1)}^"


def read_query(text: str, redaction: Redaction, now: datetime) -> Search:
    """Reads a filter for a page, which shows what is wrong with it."""
    text = text.strip()
    try:
        return Search(text, read_search(text, redaction, now))
    except FilterError as error:
        hint = (error.hint or "").rpartition("^\n")[2]
        return Search(text[: MOST_CHARACTERS + 1], (), error.message, hint, error.column)
    except HiddenSearch as error:
        return Search(text, (), error.message, error.hint)


async def show_jobs(request: Request) -> Response:
    visit = get_visit(request)
    identity = visit.require("reader")
    query = request.query_params
    after = read_id(query["after"]) if query.get("after") else None
    if query.get("after") and after is None:
        raise Problem(422, "The value of after is not the id of a job.")
    hidden = [name for name in query.get("without", "").split(".") if name in COLUMNS]
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        search = read_query(query.get("q", ""), visit.board.redaction, frame.now)
        page, rows = await _read_rows(transaction, search, after, visit.board.redaction)
        sample = await _read_sample(transaction, frame, identity) if not search.text else None
    values = {
        "search": search,
        "rows": rows,
        "page_of_jobs": page,
        "after": after,
        "counts_of_states": _count_states(search, page, after, sample),
        "saved": await _read_saved(visit.board.database, identity),
        "columns": COLUMNS,
        "hidden": hidden,
        "is_roomy": query.get("rows") == "roomy",
        "states": STATES,
        "command": write_command("jobs list", search.text),
        "words": " ".join(list_words()),
        "suggested": _SUGGESTED,
    }
    return show(request, "jobs.html", frame, values, status=422 if search.problem else 200)


async def _read_rows(
    transaction: Transaction, search: Search, after: UUID | None, redaction: Redaction
) -> tuple[JobPage, list[Row]]:
    if search.problem:
        return JobPage([], None, 0, None), []
    conditions = write_conditions(search.conditions)
    until = time.monotonic() + LOOK_SECONDS
    page = await transaction.run(job_operations.read_page(conditions, after=after, limit=MOST_ROWS))
    while page.next is not None and len(page.jobs) < MOST_ROWS and time.monotonic() < until:
        more = await transaction.run(
            job_operations.read_page(conditions, after=page.next, limit=MOST_ROWS - len(page.jobs))
        )
        jobs, scanned = [*page.jobs, *more.jobs], page.scanned + more.scanned
        page = replace(more, jobs=jobs, scanned=scanned, reached=more.reached or page.reached)
    return page, await add_details(transaction, page.jobs, redaction)


async def add_details(transaction: Transaction, jobs: Sequence[ListedJob], redaction: Redaction) -> list[Row]:
    """What the list shows of jobs, without what is hidden."""
    details = {}
    if jobs:
        found = await transaction.fetch("web_listed_jobs", ([job.id for job in jobs],))
        details = {(job_id, seq): rest for job_id, seq, *rest in found}
    return [_make_row(job, details.get((job.id, job.seq), (None, None, None, None)), redaction) for job in jobs]


def _make_row(job: ListedJob, details: Sequence[Any], redaction: Redaction) -> Row:
    payload, size, failure, alike = details
    text = None
    if payload is not None:
        text = write_line(redaction.hide("payload", payload, type=job.type))
    return Row(job, _hide_error(job, redaction), text, size, failure, alike)


def _hide_error(job: ListedJob, redaction: Redaction) -> str | None:
    if job.error is None or job.state == "succeeded":
        return None
    kind, separator, message = job.error.partition(": ")
    shown = redaction.hide("error", {"type": kind, "message": message}, type=job.type)
    return f"{shown['type']}{separator}{shown['message']}" if isinstance(shown, dict) else str(shown)


async def _read_sample(transaction: Transaction, frame: Frame, identity: Identity) -> Sample | None:
    since = frame.now - timedelta(seconds=_SAMPLE_SECONDS)
    dimension = "all" if identity.tenant is None else "tenant"
    found = await transaction.run(figure_operations.samples(dimension, since=since))
    return found[-1] if found else None


def _count_states(
    search: Search, page: JobPage, after: UUID | None, sample: Sample | None
) -> Mapping[str, tuple[int, bool]]:
    """How many jobs each tab leads to, where that is known: from the figures, or because the page has all."""
    if sample is not None:
        waiting = sample.ready + sample.scheduled + sample.limited + sample.paused + sample.unsupported
        counts = {
            "queued": waiting + sample.unmatched, "running": sample.running, "blocked": sample.blocked,
            "failed": sample.retrying,
        }  # fmt: skip
        return {state: (count, sample.is_estimate) for state, count in counts.items()}
    if search.problem or search.names_state or page.next is not None or after is not None:
        return {}
    return {state: (sum(job.state == state for job in page.jobs), False) for state in STATES}


async def _read_saved(database: Database, identity: Identity) -> list[key_operations.SavedFilter]:
    async with database.acting_as_itself() as transaction:
        return (await transaction.run(key_operations.saved_filters(PAGE, identity.tenant)))[:_MOST_SAVED]


def list_words() -> list[str]:
    """What the field suggests: the fields, and the values of those that have few."""
    values = [f"state:{state}" for state in (*STATES, *WAITS)] + [f"waits:{wait}" for wait in WAITS]
    return [f"{name}." if name in ("payload", "meta") else f"{name}:" for name in FIELDS] + values


def write_command(command: str, where: str, *options: str) -> str:
    """The command that does the same, to copy."""
    words = [f"watchbill {command}", *([f"--where {shlex.quote(where)}"] if where else []), *options]
    return name_commands(" ".join(words))


# -- Saved filters


async def _save_filter(request: Request) -> Response:
    identity, database, fields = await _read_filter_form(request)
    name, query = read_field(fields, "name")[:100], fields.get("q", "").strip()
    async with database.acting_as_itself(actor=identity.name) as transaction:
        await transaction.run(key_operations.save_filter(PAGE, name, query, identity.tenant))
    response = RedirectResponse(link(request, PAGE, q=query), 303)
    leave_notice(request, response, f"The filter is saved as {name}.")
    return response


async def _forget_filter(request: Request) -> Response:
    identity, database, fields = await _read_filter_form(request)
    number = read_field(fields, "id")
    if not number.isdecimal() or len(number) > 18:
        raise Problem(422, "The field id is not the number of a filter.")
    async with database.acting_as_itself(actor=identity.name) as transaction:
        is_removed = await transaction.run(key_operations.remove_filter(int(number), identity.tenant))
    response = RedirectResponse(read_back(request, fields), 303)
    leave_notice(request, response, "The filter is deleted." if is_removed else "There was no such filter.")
    return response


async def _read_filter_form(request: Request) -> tuple[Identity, Database, dict[str, str]]:
    visit = get_visit(request)
    return visit.require("producer"), visit.board.database, await read_form(request)


ROUTES: list[BaseRoute] = [
    Route(PAGE, show_jobs, methods=["GET"]),
    Route("/jobs/save", _save_filter, methods=["POST"]),
    Route("/jobs/forget", _forget_filter, methods=["POST"]),
]

"""What is measured and what happens: series, figures for autoscalers, and events."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field
from starlette.responses import Response, StreamingResponse

from watchbill.client import figure_operations, job_operations
from watchbill.client.operations import Rows
from watchbill.dashboard.api.call import Call
from watchbill.dashboard.api.shapes import Answer, Instant, Name, Number, Query, Text, list_of
from watchbill.dashboard.figures import read_queues
from watchbill.dashboard.problems import Problem

MOST_POINTS = 1_000
MOST_EVENTS = 200  # that one look reads; the stream says how many more there were
LOOK_SECONDS = 1.0
AGAIN = timedelta(seconds=3)  # read again at each look
OLDEST = timedelta(minutes=5)  # events that a client may have missed
COMMENT_SECONDS = 15.0
_ENDED = ("succeeded", "failed", "dead", "canceled", "ended", "run_seconds", "wait_seconds")


class SeriesQuery(Query):
    metric: Literal[
        "succeeded", "failed", "dead", "canceled", "ended", "run_seconds", "wait_seconds",
        "running", "ready", "scheduled", "retrying", "limited", "paused", "unsupported", "unmatched", "blocked",
    ]  # fmt: skip
    dimension: Literal["all", "queue", "type", "tenant"] = "all"
    name: Text = Field("", description="Of the queue, type or tenant.")
    since: Instant | None = Field(None, description="Default: an hour ago.")
    until: Instant | None = None
    step: Annotated[Number, Field(ge=60, le=86_400)] = Field(60, description="Seconds between two points.")


class Point(Answer):
    at: Instant
    value: float


Series = list_of(Point, "Series", "What has ended in each step, or the last sample of how much waited in it.")


class ScaleQuery(Query):
    queue: Name
    drain_in: Annotated[Number, Field(ge=1, le=86_400)] = Field(
        60, description="Seconds in which to clear the backlog."
    )


class Scale(Answer):
    """`wanted` nodes of the usual capacity clear the backlog in time. `capacity`: how many jobs may run at once now."""

    queue: str
    ready: int
    running: int
    oldest_seconds: float
    nodes: int
    capacity: int
    wanted: int


class EventQuery(Query):
    queue: Name | None = Field(None, description="Only events of jobs and schedules of this queue.")
    type: Name | None = Field(None, description="Only events of jobs and schedules of this type.")


async def show_series(call: Call[None, SeriesQuery]) -> dict[str, Any]:
    query = call.query
    now = datetime.now(UTC)
    until = min(query.until or now, now)
    since = query.since or until - timedelta(hours=1)
    if (until - since).total_seconds() > query.step * MOST_POINTS:
        raise Problem(422, f"These are more than {MOST_POINTS:,} points.", hint="Give a larger step, or a later since.")
    async with call.acting() as transaction:
        if query.metric in _ENDED:
            rows = await transaction.fetch("web_endings", (query.dimension, query.name, since, query.step))
            names = ("at", "succeeded", "failed", "dead", "canceled", "ended", "run_seconds", "wait_seconds")
            place = names.index(query.metric)
            points = [(row[0], row[place]) for row in rows]
        else:
            samples = await transaction.run(figure_operations.samples(query.dimension, since=since))
            points = [(each.at, getattr(each, query.metric)) for each in samples if each.name == query.name]
            points = list({int(at.timestamp()) // query.step: (at, value) for at, value in points}.values())
    return {"items": [{"at": at, "value": value} for at, value in points if since <= at <= until]}


async def show_scale(call: Call[None, ScaleQuery]) -> dict[str, Any]:
    query = call.query
    async with call.acting() as transaction:
        found = next((each for each in await read_queues(transaction, query.queue) if each.queue == query.queue), None)
        nodes = [
            node
            for node in await transaction.run(job_operations.nodes())
            if node.state == "active" and (node.queues is None or query.queue in node.queues)
        ]
    ready, running = (found.ready or 0, found.running or 0) if found else (0, 0)
    mean_run = found.mean_run if found else None
    capacity = sum(node.capacity or 1 for node in nodes)
    per_node = max(1, capacity // len(nodes)) if nodes else 1
    busy = running + ready * (mean_run or 1.0) / query.drain_in  # handlers that the backlog keeps busy
    oldest = found.oldest if found else None
    return {
        "queue": query.queue,
        "ready": ready,
        "running": running,
        "oldest_seconds": max(0.0, (datetime.now(UTC) - oldest).total_seconds()) if oldest else 0.0,
        "nodes": len(nodes),
        "capacity": capacity,
        "wanted": math.ceil(busy / per_node),
    }


# -- Events


async def stream(call: Call[None, EventQuery]) -> Response:
    """Server-sent events. The id of an event is its instant: a client that comes again sends the last one."""
    since = _read_last(call.request.headers.get("last-event-id"))
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_write_stream(call, since), media_type="text/event-stream", headers=headers)


def _read_last(given: str | None) -> datetime:
    now = datetime.now(UTC)
    try:
        found = datetime.fromisoformat(given or "")
    except ValueError:
        return now
    return max(found, now - OLDEST) if found.tzinfo is not None else now


async def _write_stream(call: Call[None, EventQuery], since: datetime) -> AsyncIterator[str]:
    """Looks every second, and reads the last seconds again: a transaction that began earlier may commit late."""
    yield "retry: 3000\n\n"
    seen: dict[str, datetime] = {}
    silent_since = time.monotonic()
    with call.board.traffic.waiting(call.identity):
        while not await call.request.is_disconnected():
            rows = await _look(call, since)
            for key, at, kind, about, _ in rows:
                if key not in seen:
                    silent_since = time.monotonic()
                    yield write_event(call, at, kind, about)
            left_out = rows[0][4] - sum(at > since for _, at, *_ in rows) if rows else 0
            since = max([since, *(at for _, at, *_ in rows)])
            if left_out > 0:
                yield write_event(call, since, "more", {"count": left_out})
            seen = {key: at for key, at, *_ in rows}
            if time.monotonic() - silent_since >= COMMENT_SECONDS:
                silent_since = time.monotonic()
                yield ": nothing new\n\n"
            await asyncio.sleep(LOOK_SECONDS)


async def _look(call: Call[None, EventQuery], since: datetime) -> Rows:
    query = call.query
    params = {"since": since - AGAIN, "after": since, "queue": query.queue, "type": query.type, "most": MOST_EVENTS}
    async with call.acting() as transaction:
        return await transaction.fetch("events", params)


def write_event(call: Call[Any, Any], at: datetime, kind: str, about: dict[str, Any]) -> str:
    shown = {**about, "at": at}
    if about.get("message") is not None:
        hidden = call.board.redaction.hide("error", {"message": about["message"]}, type=about.get("type"))
        shown["message"] = hidden["message"] if isinstance(hidden, dict) else hidden
    return f"id: {at.isoformat()}\nevent: {kind}\ndata: {orjson.dumps(shown).decode()}\n\n"

"""API keys: the list, and a form that makes one and shows it this once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from watchbill.client import key_operations
from watchbill.client.key_operations import NewKey
from watchbill.dashboard.actions import Fields, act, read_field
from watchbill.dashboard.database import Transaction
from watchbill.dashboard.forms import read_form
from watchbill.dashboard.identity import ROLES
from watchbill.dashboard.layout import read_frame
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.rendering import show
from watchbill.dashboard.visit import get_visit
from watchbill.errors import WatchbillError
from watchbill.model import durations


async def show_keys(request: Request) -> Response:
    return await _show(request, {"role": "producer", "expires": "90d"})


async def _show(
    request: Request, fields: Mapping[str, str], problem: str | None = None, made: NewKey | None = None
) -> Response:
    visit = get_visit(request)
    async with visit.board.database.acting(visit.require("admin")) as transaction:
        frame = await read_frame(transaction)
        keys = await transaction.run(key_operations.keys())
    values = {"keys": keys, "roles": ROLES, "fields": fields, "problem": problem, "made": made}
    return show(request, "keys.html", frame, values, status=422 if problem else 200)


async def add_key(request: Request) -> Response:
    """Makes a key. Its page is the only one that shows it, so it does not lead to another one."""
    visit = get_visit(request)
    identity = visit.require("admin")
    fields = await read_form(request)
    try:
        async with visit.board.database.acting(identity) as transaction:
            frame = await read_frame(transaction)
            made = await transaction.run(key_operations.add_key(**_read_key(fields, frame.now)))
    except (Problem, WatchbillError) as error:
        detail = error.detail if isinstance(error, Problem) else f"{error.message} {error.hint or ''}".strip()
        return await _show(request, fields, detail)
    return await _show(request, {"role": "producer", "expires": "90d"}, made=made)


def _read_key(fields: Fields, now: datetime) -> dict[str, Any]:
    rate, expires = fields.get("rate", "").strip(), fields.get("expires", "").strip()
    if rate and not (rate.replace(".", "", 1).isdecimal() and rate.isascii()):
        raise Problem(422, f"{rate[:20]!r} is not a number of requests per second.")
    try:
        expires_at = now + timedelta(seconds=durations.seconds(expires)) if expires else None
    except (ValueError, OverflowError):
        raise Problem(422, f"{expires[:40]!r} is not a duration.", hint="Write 90d.") from None
    return {
        "name": read_field(fields, "name"), "role": read_field(fields, "role"),
        "tenant": fields.get("tenant", "").strip() or None, "queues": _split(fields.get("queues", "")),
        "types": _split(fields.get("types", "")), "rate": float(rate) if rate else None, "expires_at": expires_at,
    }  # fmt: skip


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


async def _revoke(transaction: Transaction, fields: Fields) -> str:
    key = await transaction.run(key_operations.revoke_key(read_field(fields, "id")))
    return f"Key {key} is revoked. Dashboards refuse it within ten seconds."


ROUTES: list[BaseRoute] = [
    Route("/keys", show_keys, methods=["GET"]),
    Route("/keys", add_key, methods=["POST"]),
    Route("/keys/revoke", act("admin", _revoke), methods=["POST"]),
]

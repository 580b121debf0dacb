"""The system: server, tables, partitions, chores, settings, who checks rights, and what `watchbill doctor` finds."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from watchbill._version import __version__
from watchbill.client import key_operations
from watchbill.dashboard.actions import Fields, act, read_field
from watchbill.dashboard.database import Transaction
from watchbill.dashboard.layout import read_frame
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.rendering import show
from watchbill.dashboard.visit import Board, get_visit
from watchbill.postgres.checks import Finding, examine
from watchbill.postgres.migrate import Source

_LATE_SECONDS = 120.0  # a chore that is due for so long is late
_SECRET_WORDS = ("url", "secret", "password", "users", "token")
_USER_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]*@")


async def show_system(request: Request) -> Response:
    visit = get_visit(request)
    identity = visit.require("reader")
    database = visit.board.database
    async with database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        (server,) = await transaction.fetch("web_server")
        ((schema_version,),) = await transaction.fetch("web_schema_version")
        tables = await transaction.fetch("web_tables")
        partitions = await transaction.fetch("web_partitions")
        chores = await transaction.fetch("web_chores")
        marks = await transaction.run(key_operations.chart_marks())
    values: dict[str, Any] = {
        "server": server, "schema_version": schema_version, "tables": tables, "partitions": partitions,
        "chores": [(chore, (frame.now - chore[2]).total_seconds() > _LATE_SECONDS) for chore in chores],
        "marks": marks[:20], "facts": await database.read_facts(), "settings": list_settings(visit.board),
        "version": __version__, "schema": database.queries.schema, "redaction": visit.board.redaction,
        "has_login": visit.board.has_login,
    }  # fmt: skip
    return show(request, "system.html", frame, values)


def list_settings(board: Board) -> list[tuple[str, str, str]]:
    """The settings that are not as usual: name, value without secrets, and where it is set."""
    settings = board.app.producer.runtime.settings
    found = []
    for each in fields(settings):
        if each.name == "origins" or each.name not in settings.origins:
            continue
        is_secret = not each.repr or any(word in each.name for word in _SECRET_WORDS)
        value = "hidden" if is_secret else _USER_IN_ADDRESS.sub("hidden@", str(getattr(settings, each.name)))
        found.append((each.name, value, settings.origins[each.name]))
    return found


async def show_doctor(request: Request) -> Response:
    """What `watchbill doctor` finds, from the machine of the dashboard. It opens a connection of its own, so only
    operators ask for it."""
    visit = get_visit(request)
    identity = visit.require("operator")
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
    findings = await asyncio.to_thread(_examine, visit.board)
    wrong = sum(each.state == "wrong" for each in findings)
    return show(request, "doctor.html", frame, {"findings": findings, "wrong": wrong})


def _examine(board: Board) -> Sequence[Finding]:
    settings = board.app.producer.runtime.settings
    return list(examine(Source.of_package("watchbill.store"), lambda: settings))


async def _add_mark(transaction: Transaction, fields: Fields) -> str:
    text = read_field(fields, "text")[:200]
    await transaction.run(key_operations.add_chart_mark(text))
    return f"Charts show “{text}” from now on."


async def _remove_mark(transaction: Transaction, fields: Fields) -> str:
    number = read_field(fields, "id")
    if not (number.isascii() and number.isdecimal() and len(number) < 19):
        raise Problem(422, f"{number[:40]!r} is not the number of a mark.")
    is_removed = await transaction.run(key_operations.remove_chart_mark(int(number)))
    return "The mark is removed." if is_removed else "There is no such mark."


ROUTES: list[BaseRoute] = [
    Route("/system", show_system, methods=["GET"]),
    Route("/system/doctor", show_doctor, methods=["GET"]),
    Route("/system/mark", act("operator", _add_mark), methods=["POST"]),
    Route("/system/unmark", act("operator", _remove_mark), methods=["POST"]),
]

"""Limits and rates: the list, and one limit with its keys, who holds them, and forms to change it."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from watchbill.client import job_operations, limit_operations
from watchbill.dashboard import charts
from watchbill.dashboard.actions import Fields, act, read_field
from watchbill.dashboard.database import Transaction
from watchbill.dashboard.layout import read_frame
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.rendering import show
from watchbill.dashboard.visit import get_visit
from watchbill.dashboard.words import MINUTE, write_duration
from watchbill.model.limit_records import LimitKey, LimitRecord, RateRecord
from watchbill.model.limits import Rate

MOST_KEYS, MOST_AUDITED = 200, 10


async def show_limits(request: Request) -> Response:
    visit = get_visit(request)
    identity = visit.require("reader")
    text = request.query_params.get("q", "").strip()[:100]
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        limits = await transaction.run(limit_operations.limits())
    found = [limit for limit in limits if text.lower() in limit.name.lower()]
    found.sort(key=lambda limit: (-(limit.waiters or 0), limit.name))
    values = {"limits": [(limit, describe_rule(limit)) for limit in found[:500]], "number": len(limits), "text": text}
    return show(request, "limits.html", frame, values)


def describe_rule(limit: LimitRecord) -> str:
    """`20 at once, 10 per 1 min`."""
    parts = [] if limit.max is None else [f"{limit.max:,} at once"]
    parts += [_describe_rate(rate) for rate in limit.rates]
    if limit.when_full not in (None, "wait"):
        parts.append(f"{limit.when_full} when full")
    if limit.when_dead == "pause":
        parts.append("a dead job keeps its key")
    return ", ".join(parts) or "no rule"


def _describe_rate(rate: RateRecord) -> str:
    seconds = rate.per.total_seconds()
    length = f"{seconds:.0f} s" if seconds < MINUTE and seconds.is_integer() else write_duration(seconds)
    return f"{rate.count:,} per {length}{', evenly' if rate.evenly else ''}"


async def show_limit(request: Request) -> Response:
    visit = get_visit(request)
    identity = visit.require("reader")
    name = request.query_params.get("name", "")[:300]
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        found = await transaction.run(limit_operations.show(name, limit=MOST_KEYS)) if name else None
        if found is None:
            raise Problem(
                404, f"There is no limit {name[:100]!r}.", hint="A limit is known while it has a rule or a key."
            )
        audit = await transaction.run(job_operations.audit(subject=f"limit {name}", limit=MOST_AUDITED))
    rule = found.limit
    values = {
        "name": name, "rule": rule, "said": describe_rule(rule) if rule else "ordered keys, one job of each at a time",
        "keys": [(key, _measure(key, rule)) for key in found.keys], "most": MOST_KEYS,
        "holders": found.holders,
        "dead_keys": {each.key for each in found.holders if each.state == "dead" and each.key.startswith("order:")},
        "rates": ", ".join(_write_rate(rate) for rate in rule.rates) if rule else "", "audit": audit,
    }  # fmt: skip
    return show(request, "limit.html", frame, values)


def _measure(key: LimitKey, rule: LimitRecord | None) -> Any:
    most = rule.max if rule else None
    is_full = most is not None and key.holders - key.kept >= most
    return charts.meter(key.holders - key.kept, most, "paused" if is_full else "running") if most else ""


def _write_rate(rate: RateRecord) -> str:
    return f"{rate.count}/{rate.per.total_seconds():g}s"


def read_rates(text: str, *, evenly: bool) -> list[Rate] | None:
    """`10/1m, 100/1d`; `none` for no rate; None for an empty text, which changes nothing."""
    if not text.strip():
        return None
    rates = []
    for part in [] if text.strip() == "none" else text.split(","):
        count, _, per = part.strip().partition("/")
        try:
            rates.append(Rate(int(count), per=per, evenly=evenly))
        except (ValueError, TypeError):
            raise Problem(422, f"{part.strip()[:40]!r} is not a rate.", hint="Write 10/1m, or none.") from None
    return rates


async def _set(transaction: Transaction, fields: Fields) -> str:
    name, most = read_field(fields, "name"), fields.get("max", "").strip()
    if most and not (most.isascii() and most.isdecimal() and len(most) < 11):
        raise Problem(422, f"{most[:20]!r} is not a whole number.")
    rates = read_rates(fields.get("rates", ""), evenly=fields.get("evenly") == "yes")
    if not most and rates is None:
        raise Problem(422, "There is nothing to change.", hint="Give how many run at once, or rates such as 10/1m.")
    rule = await transaction.run(limit_operations.set_limit(name, max=int(most) if most else None, rates=rates))
    return f"Limit {name}: {describe_rule(rule)}." if rule else f"Limit {name} is changed."


async def _clear(transaction: Transaction, fields: Fields) -> str:
    name = read_field(fields, "name")
    if not await transaction.run(limit_operations.clear_limit(name)):
        return f"{name} was not changed: there was nothing to undo."
    return f"{name} is free." if name.startswith("order:") else f"Limit {name} is as the code declares it."


ROUTES: list[BaseRoute] = [
    Route("/limits", show_limits, methods=["GET"]),
    Route("/limit", show_limit, methods=["GET"]),
    Route("/limit/set", act("operator", _set), methods=["POST"]),
    Route("/limit/clear", act("operator", _clear), methods=["POST"]),
]

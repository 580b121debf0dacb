"""Alerts: what is wrong and was, silences, rules, routes and their messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from watchbill.client import alert_operations
from watchbill.dashboard.actions import Fields, act, read_field
from watchbill.dashboard.database import Transaction
from watchbill.dashboard.layout import read_frame
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.rendering import show
from watchbill.dashboard.visit import get_visit
from watchbill.dashboard.words import write_duration
from watchbill.model import durations
from watchbill.model.alert_records import AlertRuleRecord

MOST_SHOWN = 200
TABS = ("open", "past", "silences", "rules", "routes")
PAST_DAYS = 7
_SEVERITIES = ("critical", "warning", "info")


async def show_alerts(request: Request) -> Response:
    visit = get_visit(request)
    identity = visit.require("reader")
    wanted = request.query_params.get("show", "open")
    tab = wanted if wanted in TABS else "open"
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        since = frame.now - timedelta(days=PAST_DAYS) if tab == "past" else None
        alerts = await transaction.run(alert_operations.alerts(since=since, limit=MOST_SHOWN))
        rules = await transaction.run(alert_operations.rules())
        parts = await _read_tab(transaction, tab)
    hide = visit.board.redaction.hide_text
    shown = [replace(each, reason=hide(each.reason)) for each in alerts if tab != "past" or each.cleared_at is not None]
    order = {"firing": 0, "pending": 1, "cleared": 2}
    shown.sort(key=lambda each: (order[each.state], _SEVERITIES.index(each.severity), -each.since.timestamp()))
    values = {
        "tab": tab, "tabs": TABS, "alerts": shown,
        "firing": sum(each.state == "firing" and not each.is_silenced for each in alerts),
        "past_days": PAST_DAYS, "severities": _SEVERITIES, "write_matcher": write_matcher,
        "write_bound": write_bound, "rules": rules, "abouts": {rule.rule: rule.about for rule in rules}, **parts,
    }  # fmt: skip
    return show(request, "alerts.html", frame, values)


async def _read_tab(transaction: Transaction, tab: str) -> Mapping[str, Any]:
    if tab == "silences":
        return {"silences": await transaction.run(alert_operations.silences())}
    if tab == "routes":
        return {
            "routes": await transaction.run(alert_operations.routes()),
            "deliveries": await transaction.run(alert_operations.deliveries(limit=20)),
        }
    return {}


def write_matcher(matcher: Mapping[str, Any]) -> str:
    parts = [f"{name} {each if isinstance(each, str) else ' or '.join(each)}" for name, each in sorted(matcher.items())]
    return ", ".join(parts) or "all alerts"


def write_bound(rule: AlertRuleRecord) -> str:
    if rule.unit is None:
        return "yes or no"
    if rule.above is None:
        return f"not set, in {rule.unit}"
    return f"above {write_duration(rule.above) if rule.unit == 'seconds' else f'{rule.above:g} {rule.unit}'}"


async def _silence(transaction: Transaction, fields: Fields) -> str:
    given = {name: fields.get(name, "").strip() for name in ("rule", "subject", "severity", "tenant")}
    matcher: Any = {name: value for name, value in given.items() if value}
    length = _read_seconds(read_field(fields, "lasting"), "How long")
    reason = fields.get("reason", "").strip()[:500] or None
    await transaction.run(alert_operations.add_silence(matcher, lasting=length, reason=reason))
    return f"Silent for {write_duration(length)}: {write_matcher(matcher)}. They are still listed here."


def _read_seconds(text: str, what: str) -> float:
    try:
        return durations.seconds(text)
    except ValueError:
        raise Problem(422, f"{what}: {text[:40]!r} is not a duration.", hint="Write 30m, 2h or 1d.") from None


async def _end_silence(transaction: Transaction, fields: Fields) -> str:
    text = read_field(fields, "id")
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else -1
    is_ended = await transaction.run(alert_operations.end_silence(number))
    return "The silence is over." if is_ended else "That silence is over already."


async def _set_rule(transaction: Transaction, fields: Fields) -> str:
    rule, subject = read_field(fields, "rule"), fields.get("subject", "").strip()
    if fields.get("reset") == "yes":
        await transaction.run(alert_operations.reset_rule(rule, subject))
        return f"{rule} has its default values again."
    change: Any = {"severity": read_field(fields, "severity"), "is_enabled": fields.get("is_enabled") == "yes"}
    if fields.get("above", "").strip():
        change["above"] = _read_bound(fields["above"].strip())
    if fields.get("lasting", "").strip():
        change["lasting"] = _read_seconds(fields["lasting"], "Lasting")
    await transaction.run(alert_operations.set_rule(rule, subject, **change))
    return f"{rule}{f' for {subject}' if subject else ''} is changed."


def _read_bound(text: str) -> float:
    """A number, or a duration, which is in seconds."""
    try:
        return float(text) if text.replace(".", "", 1).isdecimal() else durations.seconds(text)
    except ValueError:
        raise Problem(422, f"{text[:40]!r} is neither a number nor a duration.", hint="Write 100 or 5m.") from None


async def _test_route(transaction: Transaction, fields: Fields) -> str:
    name = read_field(fields, "name")
    await transaction.run(alert_operations.test_route(name))
    return f"A node sends a test to {name}. Its message stands below."


ROUTES: list[BaseRoute] = [
    Route("/alerts", show_alerts, methods=["GET"]),
    Route("/alerts/silence", act("operator", _silence), methods=["POST"]),
    Route("/alerts/unsilence", act("operator", _end_silence), methods=["POST"]),
    Route("/alerts/rule", act("operator", _set_rule), methods=["POST"]),
    Route("/alerts/test", act("operator", _test_route), methods=["POST"]),
]

"""Operations on alerts, their rules, routes and silences."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Unpack
from uuid import UUID

from watchbill.client.operations import Operation, Statement
from watchbill.model.alert_records import (
    AlertDelivery,
    AlertRecord,
    AlertRouteRecord,
    AlertRuleRecord,
    RouteKind,
    RuleChange,
    SilenceRecord,
)
from watchbill.model.durations import Duration, seconds

Matching = Mapping[str, str | Sequence[str]]


def alerts(
    *, since: datetime | None = None, rule: str | None = None, id: int | None = None, limit: int = 1_000
) -> Operation[list[AlertRecord]]:
    """Open alerts, those that fire first; with `since` also those that have cleared since then."""
    rows = yield Statement("alerts", (since, rule, id, limit), AlertRecord)
    return [AlertRecord(*row) for row in rows]


def rules() -> Operation[list[AlertRuleRecord]]:
    return [AlertRuleRecord(*row) for row in (yield Statement("alert_rules", (), AlertRuleRecord))]


def set_rule(rule: str, subject: str = "", **change: Unpack[RuleChange]) -> Operation[None]:
    lasting = timedelta(seconds=seconds(change["lasting"])) if "lasting" in change else None
    given = (change.get("above"), lasting, change.get("severity"), change.get("is_enabled"))
    yield Statement("set_alert_rule", (rule, subject, *given), (str,))


def reset_rule(rule: str, subject: str = "") -> Operation[bool]:
    ((is_changed,),) = yield Statement("reset_alert_rule", (rule, subject), (bool,))
    return bool(is_changed)


def routes(name: str | None = None) -> Operation[list[AlertRouteRecord]]:
    return [AlertRouteRecord(*row) for row in (yield Statement("alert_routes", (name,), AlertRouteRecord))]


def set_route(
    name: str,
    kind: RouteKind,
    target: str | None = None,
    *,
    secret: str | None = None,
    matcher: Matching | None = None,
    is_enabled: bool = True,
) -> Operation[None]:
    params = (name, kind, target, secret, _write_matcher(matcher), is_enabled)
    yield Statement("set_alert_route", params, (str,))


def remove_route(name: str) -> Operation[bool]:
    ((is_removed,),) = yield Statement("remove_alert_route", (name,), (bool,))
    return bool(is_removed)


def test_route(name: str) -> Operation[UUID]:
    """Has a node send a test. Returns the id of the delivery."""
    ((delivery,),) = yield Statement("test_alert_route", (name,), (UUID,))
    return UUID(str(delivery))


def deliveries(
    *, alert: int | None = None, route: str | None = None, id: UUID | None = None, limit: int = 100
) -> Operation[list[AlertDelivery]]:
    """The newest first."""
    rows = yield Statement("alert_deliveries", (alert, route, id, limit), AlertDelivery)
    return [AlertDelivery(*row) for row in rows]


def silences(*, ended: bool = False) -> Operation[list[SilenceRecord]]:
    return [SilenceRecord(*row) for row in (yield Statement("silences", (ended,), SilenceRecord))]


def add_silence(
    matcher: Matching | None,
    *,
    lasting: Duration | None = None,
    until: datetime | None = None,
    reason: str | None = None,
) -> Operation[int]:
    """Give `lasting` or `until`. Returns the id of the silence."""
    if (lasting is None) == (until is None):
        raise ValueError("a silence needs lasting or until, and not both")
    written = _write_matcher(matcher)
    end: Any = until if lasting is None else timedelta(seconds=seconds(lasting))
    query = "add_silence" if lasting is None else "add_silence_for"
    ((silence,),) = yield Statement(query, (written, end, reason), (int,))
    return int(silence)


def end_silence(id: int) -> Operation[bool]:
    ((is_ended,),) = yield Statement("end_silence", (id,), (bool,))
    return bool(is_ended)


def _write_matcher(matcher: Matching | None) -> str:
    return json.dumps({name: each if isinstance(each, str) else list(each) for name, each in (matcher or {}).items()})

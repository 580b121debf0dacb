"""Operations on limits and on the rules of queues."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from watchbill.client.operations import Operation, Statement
from watchbill.model.limit_records import LimitDetails, LimitHolder, LimitKey, LimitRecord, QueueRule, RateRecord
from watchbill.model.limits import Rate

_LIMIT_COLUMNS = (
    str, int | None, list[dict[str, Any]] | None, str | None, str | None, str | None, bool, int, int, int | None,
)  # fmt: skip


def limits() -> Operation[list[LimitRecord]]:
    rows = yield Statement("limits", (), _LIMIT_COLUMNS)
    return [LimitRecord(name, most, read_rates(rates), *more) for name, most, rates, *more in rows]


def read_rates(rates: list[dict[str, Any]] | None) -> list[RateRecord]:
    return [RateRecord(each["count"], timedelta(seconds=each["per"]), each["evenly"]) for each in rates or ()]


def find(name: str) -> Operation[LimitRecord | None]:
    found = yield from limits()
    return next((each for each in found if each.name == name), None)


def show(name: str, *, limit: int = 50) -> Operation[LimitDetails | None]:
    """At most `limit` keys and jobs. None if there is no such limit, and no job has or wants a key of this name."""
    rule = yield from find(name)
    keys = yield Statement("limit_keys", (name, limit), LimitKey)
    holders = yield Statement("limit_holders", (name, limit), LimitHolder)
    if rule is None and not keys:
        return None
    return LimitDetails(rule, [LimitKey(*row) for row in keys], [LimitHolder(*row) for row in holders])


def set_limit(
    name: str,
    *,
    max: int | None = None,
    rates: Sequence[Rate] | None = None,
    when_full: str | None = None,
    when_dead: str | None = None,
) -> Operation[LimitRecord | None]:
    """`rates` takes the place of all rates. Returns the limit as it is now."""
    for rate in rates or ():
        if rate.name not in (None, name) or rate.by is not None:
            raise ValueError(f"{rate!r} is invalid for limit {name!r}: give only count, per and evenly")
    given = None if rates is None else json.dumps([rate.rule for rate in rates])
    yield Statement("set_limit", (name, max, given, when_full, when_dead), (str,))
    return (yield from find(name))


def clear_limit(name: str) -> Operation[bool]:
    ((is_changed,),) = yield Statement("clear_limit", (name,), (bool,))
    return bool(is_changed)


def queue_rules() -> Operation[list[QueueRule]]:
    rows = yield Statement("queue_rules", (), QueueRule)
    return [QueueRule(*row) for row in rows]

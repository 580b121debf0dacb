"""Operations on limits and on the rules of queues."""

from __future__ import annotations

from watchbill.client.operations import Operation, Statement
from watchbill.model.limit_records import LimitDetails, LimitHolder, LimitKey, LimitRecord, QueueRule


def limits() -> Operation[list[LimitRecord]]:
    rows = yield Statement("limits", (), LimitRecord)
    return [LimitRecord(*row) for row in rows]


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
    count: int | None = None,
    per: float | None = None,
    burst: int | None = None,
    when_full: str | None = None,
    when_dead: str | None = None,
) -> Operation[LimitRecord | None]:
    """`per` is in seconds. Returns the limit as it is now."""
    yield Statement("set_limit", (name, max, count, per, burst, when_full, when_dead), (str,))
    return (yield from find(name))


def clear_limit(name: str) -> Operation[bool]:
    ((is_changed,),) = yield Statement("clear_limit", (name,), (bool,))
    return bool(is_changed)


def queue_rules() -> Operation[list[QueueRule]]:
    rows = yield Statement("queue_rules", (), QueueRule)
    return [QueueRule(*row) for row in rows]

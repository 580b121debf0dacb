"""Token groups, pins and items: operations, as in `operations.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from watchbill.client.operations import Operation, Statement
from watchbill.cluster.options import GroupOptions
from watchbill.errors import WatchbillError
from watchbill.model.cluster import (
    GroupRecord,
    IncompleteItem,
    ItemRecord,
    PinRecord,
    RebalanceRecord,
    TokenOwner,
    TokenRange,
)

MOST_ROWS = 10_000


class NoSuchGroup(WatchbillError):
    """There is no token group of this name."""


class ItemClaimed(NamedTuple):
    """A row of the SQL function `claim_items`."""

    key: str
    fence: int | None
    refused: str | None
    node: str | None


def declare_group(name: str, options: GroupOptions) -> Operation[None]:
    params = (name, options.tokens, options.hash, options.min_nodes, options.handover_timeout)
    yield Statement("declare_group", params)


def remove_group(name: str) -> Operation[None]:
    """Refused while the group has living members or unfinished jobs."""
    yield Statement("remove_group", (name,))


def groups(name: str | None = None) -> Operation[list[GroupRecord]]:
    return [GroupRecord(*row) for row in (yield Statement("groups", (name,), GroupRecord))]


def group(name: str) -> Operation[GroupRecord]:
    found = yield from groups(name)
    if not found:
        raise NoSuchGroup(f"There is no token group {name!r}.", hint="`watchbill groups` lists them.")
    return found[0]


def token_owners(group: str) -> Operation[list[TokenOwner]]:
    return [TokenOwner(*row) for row in (yield Statement("token_owners", (group,), TokenOwner))]


def token_ranges(group: str) -> Operation[list[TokenRange]]:
    return [TokenRange(*row) for row in (yield Statement("token_ranges", (group,), TokenRange))]


def rebalances(group: str, limit: int = 100) -> Operation[list[RebalanceRecord]]:
    return [RebalanceRecord(*row) for row in (yield Statement("rebalances", (group, limit), RebalanceRecord))]


def request_rebalance(group: str) -> Operation[None]:
    yield Statement("request_rebalance", (group,))


def pin(
    group: str,
    wanted: Iterable[Mapping[str, Any]],
    *,
    created_by: str | None = None,
    expires: float | None = None,
    append: bool = False,
) -> Operation[int]:
    text = orjson.dumps([dict(each) for each in wanted]).decode()
    ((count,),) = yield Statement("pin", (group, text, created_by, expires, append), (int,))
    return int(count)


def pins(
    group: str, *, key: str | None = None, created_by: str | None = None, limit: int = MOST_ROWS
) -> Operation[list[PinRecord]]:
    rows = yield Statement("pins", (group, key, created_by, limit), PinRecord)
    return [PinRecord(*row) for row in rows]


def clear_pins(group: str, *, key: str | None = None, created_by: str | None = None) -> Operation[int]:
    ((count,),) = yield Statement("clear_pins", (group, key, created_by), (int,))
    return int(count)


def claim_items(
    epoch: int, group: str, keys: Sequence[str], scope: str, *, again: bool = False
) -> Operation[list[ItemClaimed]]:
    rows = yield Statement("claim_items", (epoch, group, list(keys), scope, again))
    return [ItemClaimed(*row) for row in rows]


def check_item(group: str, key: str, fence: int, scope: str) -> Operation[None]:
    yield Statement("check_item", (group, key, fence, scope))


def finish_items(
    group: str, keys: Sequence[str], fences: Sequence[int], scope: str, *, released: bool = False
) -> Operation[list[str]]:
    """Returns the keys whose fence was stale."""
    ((stale,),) = yield Statement("finish_items", (group, list(keys), list(fences), scope, released))
    return list(stale)


def audit(group: str, scope: str) -> Operation[list[ItemRecord]]:
    found: list[ItemRecord] = []
    while True:
        last = found[-1].key if found else None
        rows = yield Statement("item_audit", (group, scope, MOST_ROWS, last), ItemRecord)
        found += [ItemRecord(*row) for row in rows]
        if len(rows) < MOST_ROWS:
            return found


def incomplete(group: str, scope: str, older_than: float) -> Operation[list[IncompleteItem]]:
    rows = yield Statement("incomplete_items", (group, scope, older_than), IncompleteItem)
    return [IncompleteItem(*row) for row in rows]

"""The cluster: token groups with their map, members and rebalances, pins, named locks, and whose token a key has."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from watchbill.client import cluster_operations, lock_operations
from watchbill.cluster.hashing import token_of
from watchbill.dashboard import charts
from watchbill.dashboard.actions import Fields, act, read_field
from watchbill.dashboard.database import Transaction
from watchbill.dashboard.layout import read_frame
from watchbill.dashboard.problems import Problem
from watchbill.dashboard.rendering import show
from watchbill.dashboard.visit import get_visit
from watchbill.model import durations
from watchbill.model.cluster import GroupRecord, PinRecord, TokenRange
from watchbill.model.lock import Leader, LockRecord

MOST_REBALANCES, MOST_PINS, MOST_LOCKS = 8, 50, 200
_SOON_SECONDS = 5.0  # a lock that ends so soon is shown as late


@dataclass(frozen=True)
class FoundKey:
    """The token of a key, who owns it, and where it moves to."""

    key: str
    token: int
    owner: str | None
    next: str | None
    pin: PinRecord | None


async def show_cluster(request: Request) -> Response:
    visit = get_visit(request)
    identity = visit.require("reader")
    wanted, key = request.query_params.get("group"), request.query_params.get("key", "").strip()[:1000]
    async with visit.board.database.acting(identity, read_only=True) as transaction:
        frame = await read_frame(transaction)
        groups = await transaction.run(cluster_operations.groups())
        group = next((each for each in groups if each.name == wanted), groups[0] if groups and not wanted else None)
        if wanted and group is None:
            raise Problem(404, f"There is no token group {wanted[:100]!r}.")
        parts = await _read_group(transaction, group, key) if group else {}
        leaders = await transaction.run(lock_operations.leaders())
        locks = await transaction.run(lock_operations.locks())
    values: dict[str, Any] = {
        "groups": groups, "group": group, "key": key, "number_of_locks": len(locks),
        "locks": [(lock, _measure_lock(lock, frame.now)) for lock in locks[:MOST_LOCKS]],
        "leader": next((each for each in leaders if group and each.group == group.name), None),
        "other_leaders": [each for each in leaders if group is None or each.group != group.name],
        "write_places": write_places, **parts,
    }  # fmt: skip
    values["leader_lease"] = _measure_leader(values["leader"], frame.now)
    return show(request, "cluster.html", frame, values)


async def _read_group(transaction: Transaction, group: GroupRecord, key: str) -> Mapping[str, Any]:
    owned = await transaction.run(cluster_operations.token_owners(group.name))
    ranges = await transaction.run(cluster_operations.token_ranges(group.name))
    owners = sorted(each.node for each in owned if each.node is not None)
    shown = [charts.TokenRange(each.first, each.last, each.owner, each.next is not None) for each in ranges]
    return {
        "map": charts.token_map(f"Map of {group.total:,} tokens", shown, owners, group.total),
        "owners": [(each, charts.owner_cell(owners, each.node)) for each in owned if each.node or each.tokens],
        "legend": charts.explain_owners(owners),
        "unowned": sum(each.last - each.first + 1 for each in ranges if each.owner is None),
        "rebalances": await transaction.run(cluster_operations.rebalances(group.name, MOST_REBALANCES)),
        "pins": await transaction.run(cluster_operations.pins(group.name, limit=MOST_PINS)),
        "found": await _find_key(transaction, group, ranges, key) if key else None,
    }


async def _find_key(
    transaction: Transaction, group: GroupRecord, ranges: Sequence[TokenRange], key: str
) -> FoundKey:  # fmt: skip
    token = token_of(key, group.total, group.hash)
    part = next((each for each in ranges if each.first <= token <= each.last), None)
    pins = await transaction.run(cluster_operations.pins(group.name, key=key, limit=1))
    pin = pins[0] if pins else None
    owner = pin.owner if pin else part.owner if part else None
    return FoundKey(key, token, owner, part.next if part else None, pin)


def _measure_lock(lock: LockRecord, now: datetime) -> tuple[float, Markup] | None:
    """How many seconds are left, of those that the lock is renewed for."""
    if lock.expires_at is None or lock.acquired_at is None or lock.state != "held":
        return None
    left = (lock.expires_at - now).total_seconds()
    return left, charts.meter(max(left, 0), 30.0, "failed" if left < _SOON_SECONDS else "running", width=64,
                              label=f"{left:.0f} s left")  # fmt: skip


def _measure_leader(leader: Leader | None, now: datetime) -> float | None:
    return None if leader is None else (leader.expires_at - now).total_seconds()


def write_places(pin: PinRecord) -> str:
    """The nodes of a pin: patterns of names, or labels, in the order in which they are tried."""
    return ", then ".join(_write_place(each) for each in pin.patterns)


def _write_place(pattern: str) -> str:
    if not pattern.startswith("{"):
        return pattern
    labels = json.loads(pattern)
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items()))


# -- Changes


async def _rebalance(transaction: Transaction, fields: Fields) -> str:
    name = read_field(fields, "group")
    await transaction.run(cluster_operations.group(name))
    await transaction.run(cluster_operations.request_rebalance(name))
    return f"The leader of {name} divides the tokens again."


async def _pin(transaction: Transaction, fields: Fields) -> str:
    group, key, place = read_field(fields, "group"), read_field(fields, "key"), read_field(fields, "place")
    await transaction.run(cluster_operations.group(group))
    wanted: dict[str, Any] = {"key": key} | ({"reason": fields["reason"][:500]} if fields.get("reason") else {})
    wanted |= {"labels": _read_labels(place)} if "=" in place else {"pattern": place}
    await transaction.run(cluster_operations.pin(group, [wanted], expires=_read_expiry(fields)))
    return f"{key} is pinned to nodes that match {place}."


def _read_labels(text: str) -> dict[str, str]:
    pairs = [part.split("=", 1) for part in text.split(",")]
    if any(len(pair) != 2 or not all(each.strip() for each in pair) for pair in pairs):
        raise Problem(422, f"{text[:60]!r} are not labels.", hint="Write zone=eu-1, or a pattern of names such as w1%.")
    return {name.strip(): value.strip() for name, value in pairs}


def _read_expiry(fields: Fields) -> float | None:
    text = fields.get("expires", "").strip()
    try:
        return durations.seconds(text) if text else None
    except ValueError:
        raise Problem(422, f"{text[:40]!r} is not a duration.", hint="Write 30m, 12h or 10d.") from None


async def _clear_pin(transaction: Transaction, fields: Fields) -> str:
    group, key = read_field(fields, "group"), read_field(fields, "key")
    await transaction.run(cluster_operations.group(group))
    count = await transaction.run(cluster_operations.clear_pins(group, key=key))
    return f"{key} is no longer pinned." if count else f"{key} was not pinned."


async def _release(transaction: Transaction, fields: Fields) -> str:
    name, fence = read_field(fields, "name"), fields.get("fence", "")
    if not (fence.isascii() and fence.isdecimal() and len(fence) < 20):
        raise Problem(422, "The fence is not a number.")
    if not await transaction.run(lock_operations.release(name, int(fence))):
        return f"Lock {name} was not held any more."
    return f"Lock {name} is released. Its holder finds out when it renews or checks it."


ROUTES: list[BaseRoute] = [
    Route("/cluster", show_cluster, methods=["GET"]),
    Route("/cluster/rebalance", act("operator", _rebalance), methods=["POST"]),
    Route("/cluster/pin", act("operator", _pin), methods=["POST"]),
    Route("/cluster/unpin", act("operator", _clear_pin), methods=["POST"]),
    Route("/lock/release", act("admin", _release), methods=["POST"]),
]

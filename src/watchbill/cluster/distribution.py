"""Divides tokens among owners with the fewest moves.

The leader's rebalance does the same in SQL (store/sql/cluster/rebalance.sql), where the rows are. Tests compare both.

Each owner gets an equal share, rounded down or up. How many owners round up is given by the total, so only the choice
of these owners is free. A token has to move if its owner is gone or has more than its share. An owner that has more
than the smaller share keeps one token more if it may round up; one that has less gains nothing from that. So no choice
moves fewer tokens than to let those with the most tokens round up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

Owner = TypeVar("Owner", bound=Hashable)


def shares(total: int, owners: Sequence[Owner], held: Mapping[Owner, int]) -> dict[Owner, int]:
    """How many tokens each owner gets. Those that hold the most round up; among equals, those that come first."""
    small, larger = divmod(total, len(owners))
    by_held = sorted(owners, key=lambda owner: -held.get(owner, 0))
    return {owner: small + (index < larger) for index, owner in enumerate(by_held)}


def plan_moves(tokens: Iterable[int], owners: Sequence[Owner], current: Mapping[int, Owner | None]) -> dict[int, Owner]:
    """The tokens that have to move, and where to. With no owners nothing moves."""
    tokens = sorted(tokens)
    if not owners:
        return {}
    held: Counter[Owner] = Counter()
    known = set(owners)
    for token in tokens:
        owner = current.get(token)
        if owner is not None and owner in known:
            held[owner] += 1
    left = shares(len(tokens), owners, held)
    homeless = []
    for token in tokens:
        owner = current.get(token)
        if owner is not None and left.get(owner, 0) > 0:
            left[owner] -= 1
        else:
            homeless.append(token)
    places = (owner for owner in owners for _ in range(left[owner]))
    return dict(zip(homeless, places, strict=True))

"""How a program declares a token group, and which groups a node joins."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from watchbill.cluster.ownership import Ownership, Rebalance

OnRebalance = Callable[[Rebalance], Any]


@dataclass(frozen=True)
class GroupOptions:
    """How a group is declared. Times are in seconds."""

    tokens: int = 10_000
    hash: str = "md5"
    min_nodes: int = 1
    handover_timeout: float = 30.0


FIRST_LOOKS_SECONDS = 300.0


@dataclass(frozen=True)
class Intervals:
    """How often, in seconds, a member does without a notification what it otherwise does after one. A third of its
    lease, and ten seconds, are the longest that count."""

    heartbeat: float = math.inf
    survey: float = math.inf  # for nodes that have died
    first_looks: float = math.inf  # for its tokens, during the first five minutes
    looks: float = math.inf  # after that
    leader_looks: float = math.inf  # while it leads the group

    def between_looks(self, age: float, *, is_leader: bool) -> float:
        """`age`: seconds since the member has joined."""
        looks = self.first_looks if age < FIRST_LOOKS_SECONDS else self.looks
        return min(looks, self.leader_looks) if is_leader else looks


@dataclass(frozen=True)
class Membership:
    """A group that a node joins. Without options the group must exist, or gets the defaults."""

    ownership: Ownership
    options: GroupOptions | None = None
    queues: tuple[str, ...] = ()  # that the group routes
    on_rebalance: OnRebalance | None = None
    intervals: Intervals = Intervals()

    @property
    def group(self) -> str:
        return self.ownership.group

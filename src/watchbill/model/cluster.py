"""Token groups, pins and items as values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A token group: a row of the SQL function `group_list`."""

    name: str
    total: int
    hash: str
    min_nodes: int
    handover_timeout: timedelta
    version: int
    leader: str | None
    term: int | None
    members: list[str]
    others: list[str]
    queues: list[str]
    owned: int
    moving: int
    largest: int | None
    smallest: int | None
    pins: int
    pins_without_match: int
    waits_for: str | None


@dataclass(frozen=True, slots=True)
class TokenOwner:
    """How many tokens a node owns. If `node` is None: how many tokens no living node owns."""

    node: str | None
    epoch: int | None
    tokens: int
    pins: int
    leaving: int
    arriving: int


@dataclass(frozen=True, slots=True)
class TokenRange:
    """Tokens with consecutive numbers that one node owns, and the node that they are moving to, if any."""

    first: int
    last: int
    owner: str | None
    next: str | None


@dataclass(frozen=True, slots=True)
class RebalanceRecord:
    """A rebalance: a plan of the leader that moved tokens between members."""

    at: datetime
    reason: str
    leader: str | None
    nodes_before: list[str]
    nodes_after: list[str]
    moved: int
    version: int
    duration: timedelta


@dataclass(frozen=True, slots=True)
class PinRecord:
    """A pinned key. `owner` is None while no node owns the key; `has_match` says whether any node fits the pin."""

    key: str
    token: int
    patterns: list[str]
    owner: str | None
    has_match: bool
    reason: str | None
    created_by: str
    created_at: datetime
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class ItemRecord:
    """An item that a member has claimed; `state` is `held`, `released` or `finished`."""

    key: str
    node: str
    fence: int
    state: str
    claimed_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class IncompleteItem:
    """An item that was claimed and not finished. `is_held` says whether a living node still has it."""

    key: str
    node: str
    fence: int
    claimed_at: datetime
    is_held: bool

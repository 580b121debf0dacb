"""What a member of a token group owns, in memory: `owns` is asked for every item, so it asks no database."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from watchbill.cluster.hashing import tokenizer
from watchbill.cluster.lease import USED_PART, Lease
from watchbill.model.clock import boot_seconds


@dataclass(frozen=True)
class Rebalance:
    """What has changed for a member: the tokens that it gained and lost."""

    group: str
    gained: frozenset[int]
    lost: frozenset[int]
    version: int


@dataclass(frozen=True)
class _View:
    """One state of a group, replaced as a whole, so that readers in other threads never see half of a change."""

    token_of: Callable[[str], int] = lambda _: -1
    tokens: frozenset[int] = frozenset()
    pins: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    version: int = -1
    pins_version: int = -1
    epoch: int = -1  # of the node when this state was read


class Ownership:
    """The tokens of one member. A member writes it, any thread reads it."""

    def __init__(self, group: str, lease: Lease, clock: Callable[[], float] = boot_seconds) -> None:
        self.group, self._lease, self._clock = group, lease, clock
        self._view = _View()
        self._fresh_until = -math.inf
        self.assigned = threading.Event()  # its first tokens have arrived
        self._waiting: list[Callable[[], None]] = []

    def owns(self, key: str) -> bool:
        """Whether this node owns the key, and its lease cannot have ended."""
        view = self._view
        token = view.pins.get(key)
        if token is None:
            token = view.token_of(key)
        if token not in view.tokens:
            return False
        at, lease = self._clock(), self._lease
        return at < lease.deadline and at < self._fresh_until and view.epoch == lease.epoch

    @property
    def is_current(self) -> bool:
        """Whether the node's lease lasts, and its tokens were read lately."""
        at, lease = self._clock(), self._lease
        return at < lease.deadline and at < self._fresh_until and self._view.epoch == lease.epoch

    @property
    def heartbeat_age(self) -> float | None:
        """Seconds since the last heartbeat was sent that was confirmed; None: there was none yet."""
        sent = self._lease.sent
        return None if sent is None else self._clock() - sent

    @property
    def tokens(self) -> frozenset[int]:
        """The tokens that it owns, pins included; none if its lease may have ended."""
        return self._view.tokens if self.is_current else frozenset()

    @property
    def version(self) -> int:
        return self._view.version

    @property
    def pins_version(self) -> int:
        return self._view.pins_version

    def update(
        self,
        *,
        epoch: int,
        asked: float,
        handover_timeout: float,
        total: int,
        hash: str,
        version: int,
        tokens: Iterable[int] | None,
        pins_version: int,
        pins: Mapping[str, int] | None,
    ) -> Rebalance | None:
        """Takes what the database said to this epoch. `asked`: when the question was sent. Tokens and pins are None if
        they have not changed. What is on its way to another node does not belong to `tokens`.

        A node that does not ask for longer than `handover_timeout` may lose tokens without noticing. So what was read
        counts for a part of that time only.
        """
        before = self._view
        view = _View(
            before.token_of if before.version >= 0 else tokenizer(total, hash),
            before.tokens if tokens is None else frozenset(tokens),
            before.pins if pins is None else pins,
            version,
            pins_version,
            epoch,
        )
        self._view = view
        self._fresh_until = asked + handover_timeout * USED_PART
        if view.tokens == before.tokens:
            return None
        return Rebalance(self.group, view.tokens - before.tokens, before.tokens - view.tokens, version)

    def clear(self) -> Rebalance | None:
        """Owns nothing any more, until the next update."""
        before, self._view, self._fresh_until = self._view, _View(), -math.inf
        return Rebalance(self.group, frozenset(), before.tokens, before.version) if before.tokens else None

    def note_assigned(self) -> None:
        self.assigned.set()
        while self._waiting:
            self._waiting.pop()()

    def when_assigned(self, callback: Callable[[], None]) -> None:
        """Calls back, in the thread of the node, when the first tokens have arrived; at once if they have."""
        self._waiting.append(callback)
        if self.assigned.is_set():
            self.note_assigned()

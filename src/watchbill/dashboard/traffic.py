"""How many requests a caller may send, and how many may wait: in memory, for this process. It protects the web process;
quotas of tenants protect the database."""

from __future__ import annotations

import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from watchbill.dashboard.identity import Identity
from watchbill.dashboard.problems import Problem

RATE = 100.0  # requests a second, if the key does not say otherwise
BURST_SECONDS = 2.0  # how much a caller that was quiet may send at once
MOST_WAITING = 200  # requests of this process
MOST_WAITING_PER_CALLER = 20
_MOST_CALLERS = 10_000  # that are remembered


@dataclass
class Traffic:
    """Counts requests by key, or by name where there is no key."""

    clock: Callable[[], float] = time.monotonic
    _full_at: OrderedDict[str, float] = field(default_factory=OrderedDict)  # when the burst of a caller is whole again
    _waiting: Counter[str] = field(default_factory=Counter)

    def admit(self, identity: Identity) -> None:
        """Counts a request, or raises."""
        caller, rate, now = _name(identity), identity.rate or RATE, self.clock()
        full_at = max(self._full_at.get(caller, 0.0), now) + 1 / rate
        wait = full_at - now - max(BURST_SECONDS, 1 / rate)
        if wait > 1e-9:
            raise Problem(
                429,
                f"{identity.name} may send {rate:g} requests a second.",
                headers={"Retry-After": str(math.ceil(wait))},
            )
        self._full_at[caller] = full_at
        self._full_at.move_to_end(caller)
        while len(self._full_at) > _MOST_CALLERS:
            self._full_at.popitem(last=False)

    @contextmanager
    def waiting(self, identity: Identity) -> Iterator[None]:
        """While a request waits for something."""
        caller = _name(identity)
        if self._waiting[caller] >= MOST_WAITING_PER_CALLER or self._waiting.total() >= MOST_WAITING:
            raise Problem(429, "Too many requests wait already.", headers={"Retry-After": "1"})
        self._waiting[caller] += 1
        try:
            yield
        finally:
            self._waiting[caller] -= 1
            if not self._waiting[caller]:
                del self._waiting[caller]


def _name(identity: Identity) -> str:
    return identity.key or f"name {identity.name}"

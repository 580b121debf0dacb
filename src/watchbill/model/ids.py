"""Job ids: UUIDv7 with a counter within the millisecond, so that the ids of a process sort in the order of creation."""

from __future__ import annotations

import threading
import time
from random import getrandbits
from uuid import UUID

_COUNTER_BITS = 18  # the counter has 12 bits in the UUID's field rand_a, and 6 in rand_b (RFC 9562, method 1)
_HIGH_COUNTER, _LOW_COUNTER = 0x3FFC0, 0x3F  # the bits of a tick that go into rand_a and into rand_b
_VERSION_AND_VARIANT = (7 << 76) | (2 << 62)


class IdMaker:
    """Makes ids. Safe to share between threads and after a fork."""

    def __init__(self) -> None:
        self._last = 0
        self._lock = threading.Lock()

    def make(self, count: int) -> list[int]:
        """A tick is a millisecond and the counter within it. More ids than a counter has numbers take later ticks."""
        now = (time.time_ns() // 1_000_000) << _COUNTER_BITS
        with self._lock:
            first = max(now, self._last + 1)
            self._last = first + count - 1
        return [
            (tick >> _COUNTER_BITS << 80)
            | ((tick & _HIGH_COUNTER) << 58)
            | ((tick & _LOW_COUNTER) << 56)
            | _VERSION_AND_VARIANT
            | getrandbits(56)
            for tick in range(first, first + count)
        ]


_maker = IdMaker()


def new_id() -> UUID:
    return UUID(int=_maker.make(1)[0])


def id_range(beginning: str) -> tuple[UUID, UUID]:
    """Returns the lowest and the highest id that begin with these hexadecimal digits."""
    digits = beginning.replace("-", "")
    return UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))


def read_id(given: object) -> UUID | None:
    """Returns the id that is given as a UUID or as its text; None for anything else."""
    try:
        return given if isinstance(given, UUID) else UUID(given) if isinstance(given, str) else None
    except ValueError:
        return None


def new_ids(count: int) -> list[int]:
    """Makes ids as integers. To make the UUIDs too would take twice as long; most callers of a bulk read none."""
    return _maker.make(count)

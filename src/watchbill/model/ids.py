"""Job ids: UUIDv7 with a counter within the millisecond, so that the ids of a process sort in the order of creation."""

from __future__ import annotations

import threading
import time
from random import getrandbits
from uuid import UUID

_COUNTER_BITS = 18  # the counter has 12 bits in the UUID's field rand_a, and 6 in rand_b (RFC 9562, method 1)


class IdMaker:
    """Makes ids. Safe to share between threads and after a fork."""

    def __init__(self) -> None:
        self._last = 0
        self._lock = threading.Lock()

    def make(self) -> int:
        now = (time.time_ns() // 1_000_000) << _COUNTER_BITS
        with self._lock:
            self._last = tick = now if now > self._last else self._last + 1
        milliseconds, counter = tick >> _COUNTER_BITS, tick & 0x3FFFF
        number = (milliseconds << 80) | (7 << 76) | ((counter >> 6) << 64) | (2 << 62) | ((counter & 63) << 56)
        return number | getrandbits(56)


_maker = IdMaker()


def new_id() -> UUID:
    return UUID(int=_maker.make())

"""The clock with which a process decides whether its own lease has run out."""

from __future__ import annotations

import time

_boot_clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_seconds() -> float:
    """Returns the seconds since the machine started. This clock goes on while the machine is suspended, because leases
    do so too; setting the time does not change it."""
    return time.clock_gettime(_boot_clock)

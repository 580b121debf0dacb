"""The clock by which a process judges its own leases."""

from __future__ import annotations

import time

_boot_clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_seconds() -> float:
    """A clock that only goes forward, and goes on while the machine is suspended, as leases do."""
    return time.clock_gettime(_boot_clock)

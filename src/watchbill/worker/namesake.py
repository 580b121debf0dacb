"""A node with a name of its own that starts again after a crash need not wait for its own lease.

Whoever has the name may be a process of this very machine, and then it can be asked whether it lives. The machine is
known by its boot and by its process numbers' namespace: two containers may share a host's name and not its processes.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from watchbill.postgres.arrays import int8s
from watchbill.store.line import Line

logger = logging.getLogger("watchbill.worker")

here: set[bytes] = set()  # the instances of this process's own nodes: their process is no more dead than we are


def this_machine() -> str | None:
    """Within which a process number means one process; None where the system does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


async def bury_if_dead(line: Line, name: str) -> None:
    """Declares the node of this name lost, if its process was of this machine and is no more."""
    for epoch, beat, pid, machine, instance in await line.execute("namesake", (name,)):
        if machine is None or machine != this_machine() or instance in here or not _is_gone(pid):
            continue
        ((buried,),) = await line.execute("bury", (epoch, beat))
        if buried:
            logger.warning("Node %s (epoch %d) is dead: its process %d is gone", name, epoch, pid)
            await line.execute("reclaim", (int8s([]), int8s([])))


def _is_gone(pid: int | None) -> bool:
    """Our own number has been given to us since."""
    if pid is None or pid == os.getpid():
        return pid is not None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False

"""Lets a node that starts again under its old name after a crash begin at once, before its old lease has run out.

If the old process ran on this machine, we can see whether it still exists. A machine is identified by its boot id and
its namespace of process ids, because two containers may have the same host name and still not see each other's
processes.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

from watchbill.postgres.arrays import int8s
from watchbill.store.node_connection import NodeConnection

logger = logging.getLogger("watchbill.worker")

own_instances: set[bytes] = set()  # instance ids of the nodes that run in this process


def find_machine_id() -> str | None:
    """Returns a text that is equal for two processes that see each other's process ids. None where the operating system
    does not tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


async def expire_if_dead(connection: NodeConnection, name: str) -> None:
    """Declares the node of this name lost if its process ran on this machine and is gone."""
    for epoch, beat, pid, machine, instance in await connection.execute("node_by_name", (name,)):
        if machine is None or machine != find_machine_id() or instance in own_instances or not _is_process_gone(pid):
            continue
        ((is_expired,),) = await connection.execute("expire_node", (epoch, beat))
        if is_expired:
            logger.warning("Node %s is dead: its process %d is gone; reclaiming its jobs", name, pid)
            await connection.execute("reclaim", (int8s([]), int8s([])))


def _is_process_gone(pid: int | None) -> bool:
    if pid is None or pid == os.getpid():  # our own process got the id of the dead one
        return pid is not None
    try:
        os.kill(pid, 0)  # signal 0 is not sent: the call only checks that the process exists
    except OSError as error:
        return isinstance(error, ProcessLookupError)  # a PermissionError means that the process exists, of another user
    return False

"""What a worker is told before it starts."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from watchbill.settings import for_children
from watchbill.worker.engine import Capacity


@dataclass(frozen=True)
class Plan:
    """Where, as whom, which queues, how much at once, and how patiently."""

    url: str
    listen_url: str | None
    schema: str
    name: str
    app: str
    queues: tuple[str, ...]
    capacity: Capacity
    lease: float = 30.0
    drain_timeout: float = 30.0
    stuck_after: float = 300.0
    poll_interval: float = 0.1
    poll_max_interval: float = 5.0
    poll_multiplier: float = 2.0
    prepare: bool = True
    once: bool = False  # stop when nothing is left to do
    scheduler: bool = True  # also makes the jobs of schedules
    declared: bytes = b"[]"  # the schedules in the app's code, as JSON
    jobs_per_child: int | None = None
    memory_per_child: int | None = None  # bytes
    labels: dict[str, Any] = field(default_factory=dict)

    @property
    def for_children(self) -> dict[str, str]:
        """In their environment: an App there is on the worker's database, whatever its code says."""
        return for_children("the worker", database_url=self.url, schema=self.schema)


def default_name() -> str:
    return f"{socket.gethostname()}/{os.getpid()}/{uuid4().hex[:6]}"

"""Queues: pauses and resumes them."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from watchbill.client import job_operations
from watchbill.dashboard.actions import Fields, act, read_field
from watchbill.dashboard.database import Transaction


async def _pause(transaction: Transaction, fields: Fields) -> str:
    queue = read_field(fields, "queue")
    reason = fields.get("reason", "").strip()[:500] or None
    if not await transaction.run(job_operations.pause(queue=queue, reason=reason)):
        return f"Queue {queue} was paused already."
    return f"Queue {queue} is paused: none of its jobs start."


async def _resume(transaction: Transaction, fields: Fields) -> str:
    queue = read_field(fields, "queue")
    if not await transaction.run(job_operations.resume(queue=queue)):
        return f"Queue {queue} was not paused."
    return f"Queue {queue} is resumed."


ROUTES: list[BaseRoute] = [
    Route("/queue/pause", act("operator", _pause), methods=["POST"]),
    Route("/queue/resume", act("operator", _resume), methods=["POST"]),
]

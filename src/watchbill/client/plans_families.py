"""What a client can ask for about jobs that wait for others: plans, as in `plans.py`."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from watchbill.client.plans import Plan, Statement, get
from watchbill.model.family import Dependency, EarlierJob, Family, Neighbour, Relative

LARGEST = 10_000
NEAR = 20


def earlier(job_id: UUID, *, types: Sequence[str] | None = None, deepest: int | None = None) -> Plan[list[EarlierJob]]:
    """What a job has waited for, the nearest first."""
    rows = yield Statement("earlier", (job_id, None if types is None else list(types), deepest))
    return [EarlierJob(*row) for row in rows]


def neighbours(job_id: UUID) -> Plan[list[Neighbour]]:
    """What it waits for and what waits for it, the first twenty of each."""
    rows = yield Statement("neighbours", {"id": job_id, "most": NEAR})
    return [Neighbour(*row) for row in rows]


def family(job_id: UUID, *, largest: int = LARGEST) -> Plan[Family]:
    """A job with all that it waits for and that waits for it, however far away."""
    members = [row[0] for row in (yield Statement("family", (job_id, largest)))]
    jobs = [Relative(*row) for row in (yield Statement("relatives", (members,)))]
    if not jobs:
        yield from get(job_id)  # says that there is none
    dependencies = [Dependency(*row) for row in (yield Statement("dependencies", (members, members)))]
    return Family(jobs, dependencies, len(members) < largest)

"""What is around each page: the rail with all pages, and what every page reads from the database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from watchbill.dashboard.database import Transaction
from watchbill.dashboard.identity import Role


@dataclass(frozen=True)
class Entry:
    """A page in the rail. `name` is the part of its address, its icon and the name of its template; `role` is who may
    see it."""

    name: str
    title: str
    role: Role = "reader"

    @property
    def path(self) -> str:
        return "/" if self.name == "overview" else f"/{self.name}"


# One line for each page of the rail; a page is shown there once its file in pages/ has a route for it.
RAIL: tuple[tuple[str, tuple[Entry, ...]], ...] = (
    ("", (Entry("overview", "Overview"),)),
    ("Work", (Entry("jobs", "Jobs"), Entry("failures", "Failures"), Entry("schedules", "Schedules"))),
    (
        "Flow",
        (Entry("queues", "Queues"), Entry("types", "Types"), Entry("limits", "Limits"), Entry("tenants", "Tenants")),
    ),
    ("Fleet", (Entry("nodes", "Nodes"), Entry("cluster", "Cluster"))),
    (
        "Control",
        (
            Entry("operations", "Operations"),
            Entry("alerts", "Alerts"),
            Entry("audit", "Audit"),
            Entry("system", "System"),
            Entry("keys", "Keys", "admin"),
        ),
    ),
)
DOCK = ("overview", "jobs", "failures", "schedules")  # the bar at the bottom of a phone


@dataclass(frozen=True)
class Frame:
    """What every page shows: the time of the database, and how many things its entries of the rail lead to."""

    now: datetime
    counts: dict[str, int]
    data_age: timedelta | None = None  # of what a standby shows; None if this is the primary


async def read_frame(transaction: Transaction) -> Frame:
    ((now, nodes, queues, failures, operations, alerts),) = await transaction.fetch("web_frame")
    counts = {
        "nodes": nodes, "queues": queues, "failures": failures, "operations": operations, "alerts": alerts
    }  # fmt: skip
    return Frame(now, counts, transaction.data_age)

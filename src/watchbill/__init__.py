"""Watchbill runs work on time, once, on the right node."""

from typing import TYPE_CHECKING, Any

from watchbill._version import __version__

if TYPE_CHECKING:
    from watchbill.app.application import App
    from watchbill.app.flows import Flow, chain, group
    from watchbill.app.handle import Job, JobCanceled, JobFailed
    from watchbill.app.registry import Tasks
    from watchbill.app.rule_checks import InvalidSchedule
    from watchbill.app.task import Call, Task
    from watchbill.client.clients import AsyncClient, Client
    from watchbill.client.plans import NoSuchJob
    from watchbill.errors import WatchbillError
    from watchbill.model.job import JobFilter, JobRecord
    from watchbill.model.retry import Retry
    from watchbill.model.schedule import Reason, ScheduleFilter, ScheduleRecord, ScheduleStats, SlotRecord
    from watchbill.model.signals import Permanent, RetryAfter, Skip, Snooze
    from watchbill.payloads.store import PayloadStore
    from watchbill.postgres.connect import AsyncConnection, Connection
    from watchbill.store.refusals import StaleFence, WrongDatabase
    from watchbill.worker.run import current_job

_HOMES = {
    "App": "watchbill.app.application",
    "AsyncClient": "watchbill.client.clients",
    "AsyncConnection": "watchbill.postgres.connect",
    "Call": "watchbill.app.task",
    "Client": "watchbill.client.clients",
    "Connection": "watchbill.postgres.connect",
    "Flow": "watchbill.app.flows",
    "WatchbillError": "watchbill.errors",
    "InvalidSchedule": "watchbill.app.rule_checks",
    "Job": "watchbill.app.handle",
    "JobCanceled": "watchbill.app.handle",
    "JobFailed": "watchbill.app.handle",
    "JobFilter": "watchbill.model.job",
    "JobRecord": "watchbill.model.job",
    "PayloadStore": "watchbill.payloads.store",
    "NoSuchJob": "watchbill.client.plans",
    "Permanent": "watchbill.model.signals",
    "Reason": "watchbill.model.schedule",
    "Retry": "watchbill.model.retry",
    "RetryAfter": "watchbill.model.signals",
    "ScheduleFilter": "watchbill.model.schedule",
    "ScheduleRecord": "watchbill.model.schedule",
    "ScheduleStats": "watchbill.model.schedule",
    "Skip": "watchbill.model.signals",
    "SlotRecord": "watchbill.model.schedule",
    "Snooze": "watchbill.model.signals",
    "StaleFence": "watchbill.store.refusals",
    "WrongDatabase": "watchbill.store.refusals",
    "Task": "watchbill.app.task",
    "Tasks": "watchbill.app.registry",
    "chain": "watchbill.app.flows",
    "current_job": "watchbill.worker.run",
    "group": "watchbill.app.flows",
}

__all__ = [
    "App",
    "AsyncClient",
    "AsyncConnection",
    "Call",
    "Client",
    "Connection",
    "Flow",
    "WatchbillError",
    "InvalidSchedule",
    "Job",
    "JobCanceled",
    "JobFailed",
    "JobFilter",
    "JobRecord",
    "NoSuchJob",
    "PayloadStore",
    "Permanent",
    "Reason",
    "Retry",
    "RetryAfter",
    "ScheduleFilter",
    "ScheduleRecord",
    "ScheduleStats",
    "Skip",
    "SlotRecord",
    "Snooze",
    "StaleFence",
    "Task",
    "Tasks",
    "WrongDatabase",
    "__version__",
    "chain",
    "current_job",
    "group",
]


def __getattr__(name: str) -> Any:
    """Imported when first asked for: `import watchbill.cron` needs neither psycopg nor pydantic."""
    if name not in _HOMES:
        raise AttributeError(f"module 'watchbill' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value

"""Foliot runs work on time, once, on the right node."""

from typing import TYPE_CHECKING, Any

from foliot._version import __version__

if TYPE_CHECKING:
    from foliot.app.application import App
    from foliot.app.flows import Flow, chain, group
    from foliot.app.handle import Job, JobCanceled, JobFailed
    from foliot.app.registry import Tasks
    from foliot.app.rule_checks import InvalidSchedule
    from foliot.app.task import Call, Task
    from foliot.client.clients import AsyncClient, Client
    from foliot.client.plans import NoSuchJob
    from foliot.errors import FoliotError
    from foliot.model.job import JobFilter, JobRecord
    from foliot.model.retry import Retry
    from foliot.model.schedule import Reason, ScheduleFilter, ScheduleRecord, ScheduleStats, SlotRecord
    from foliot.model.signals import Permanent, RetryAfter, Skip, Snooze
    from foliot.payloads.store import PayloadStore
    from foliot.postgres.connect import AsyncConnection, Connection
    from foliot.store.refusals import StaleFence, WrongDatabase
    from foliot.worker.run import current_job

_HOMES = {
    "App": "foliot.app.application",
    "AsyncClient": "foliot.client.clients",
    "AsyncConnection": "foliot.postgres.connect",
    "Call": "foliot.app.task",
    "Client": "foliot.client.clients",
    "Connection": "foliot.postgres.connect",
    "Flow": "foliot.app.flows",
    "FoliotError": "foliot.errors",
    "InvalidSchedule": "foliot.app.rule_checks",
    "Job": "foliot.app.handle",
    "JobCanceled": "foliot.app.handle",
    "JobFailed": "foliot.app.handle",
    "JobFilter": "foliot.model.job",
    "JobRecord": "foliot.model.job",
    "PayloadStore": "foliot.payloads.store",
    "NoSuchJob": "foliot.client.plans",
    "Permanent": "foliot.model.signals",
    "Reason": "foliot.model.schedule",
    "Retry": "foliot.model.retry",
    "RetryAfter": "foliot.model.signals",
    "ScheduleFilter": "foliot.model.schedule",
    "ScheduleRecord": "foliot.model.schedule",
    "ScheduleStats": "foliot.model.schedule",
    "Skip": "foliot.model.signals",
    "SlotRecord": "foliot.model.schedule",
    "Snooze": "foliot.model.signals",
    "StaleFence": "foliot.store.refusals",
    "WrongDatabase": "foliot.store.refusals",
    "Task": "foliot.app.task",
    "Tasks": "foliot.app.registry",
    "chain": "foliot.app.flows",
    "current_job": "foliot.worker.run",
    "group": "foliot.app.flows",
}

__all__ = [
    "App",
    "AsyncClient",
    "AsyncConnection",
    "Call",
    "Client",
    "Connection",
    "Flow",
    "FoliotError",
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
    """Imported when first asked for: `import foliot.cron` needs neither psycopg nor pydantic."""
    if name not in _HOMES:
        raise AttributeError(f"module 'foliot' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value

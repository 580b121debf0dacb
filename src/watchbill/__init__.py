"""Watchbill: a durable job queue, cron scheduler and cluster coordinator on PostgreSQL."""

from typing import TYPE_CHECKING, Any

from watchbill._version import __version__

if TYPE_CHECKING:
    from watchbill.app.application import App
    from watchbill.app.flows import Flow, chain, group
    from watchbill.app.job import Job, JobCanceled, JobFailed, NotCommitted
    from watchbill.app.leader_task import Leadership
    from watchbill.app.lock import Lock, LockNotAcquired
    from watchbill.app.members import ItemRefused, Member
    from watchbill.app.registry import Tasks
    from watchbill.app.schedule_definition import InvalidSchedule
    from watchbill.app.task import Call, Task, ThreadTimeoutWarning
    from watchbill.client.client import AsyncClient, Client
    from watchbill.client.cluster_operations import NoSuchGroup
    from watchbill.client.job_operations import NoSuchJob
    from watchbill.client.tenant_operations import NoSuchTenant
    from watchbill.cluster.options import Intervals
    from watchbill.cluster.ownership import Rebalance
    from watchbill.errors import WatchbillError
    from watchbill.model.batch import Batch, BatchFailed
    from watchbill.model.cluster import GroupRecord, PinRecord
    from watchbill.model.decisions import Permanent, RetryAfter, Skip, Snooze
    from watchbill.model.job import JobFilter, JobRecord, NodeRecord
    from watchbill.model.limits import Limit, Rate
    from watchbill.model.queue import Queue
    from watchbill.model.retry import Retry
    from watchbill.model.schedule import (
        Reason,
        ScheduleFilter,
        ScheduleMetrics,
        ScheduleRecord,
        ScheduleStats,
        SlotRecord,
    )
    from watchbill.model.steps import (
        Signal,
        SignalTimeout,
        StepError,
        StepFailed,
        StepMismatch,
        StepRecord,
        StepUnknown,
        WaitingStep,
    )
    from watchbill.model.tenant_record import ErasureRecord, TenantRecord
    from watchbill.model.unique import Debounce, Unique
    from watchbill.payloads import PayloadStore
    from watchbill.postgres.connect import AsyncConnection, Connection
    from watchbill.store.node_connection import NameTaken
    from watchbill.store.refusals import DuplicateJob, Invalid, LockLost, QuotaExceeded, StaleFence, WrongDatabase
    from watchbill.worker.dependencies import Depends
    from watchbill.worker.run import current_job
    from watchbill.worker.step_calls import CurrentStep, current_step
    from watchbill.worker.steps import AsyncSteps, Steps

_MODULES = {
    "watchbill.app.application": ("App",),
    "watchbill.app.flows": ("Flow", "chain", "group"),
    "watchbill.app.job": ("Job", "JobCanceled", "JobFailed", "NotCommitted"),
    "watchbill.app.leader_task": ("Leadership",),
    "watchbill.app.lock": ("Lock", "LockNotAcquired"),
    "watchbill.app.members": ("ItemRefused", "Member"),
    "watchbill.app.registry": ("Tasks",),
    "watchbill.app.schedule_definition": ("InvalidSchedule",),
    "watchbill.app.task": ("Call", "Task", "ThreadTimeoutWarning"),
    "watchbill.client.client": ("AsyncClient", "Client"),
    "watchbill.client.cluster_operations": ("NoSuchGroup",),
    "watchbill.client.job_operations": ("NoSuchJob",),
    "watchbill.client.tenant_operations": ("NoSuchTenant",),
    "watchbill.cluster.options": ("Intervals",),
    "watchbill.cluster.ownership": ("Rebalance",),
    "watchbill.errors": ("WatchbillError",),
    "watchbill.model.batch": ("Batch", "BatchFailed"),
    "watchbill.model.cluster": ("GroupRecord", "PinRecord"),
    "watchbill.model.job": ("JobFilter", "JobRecord", "NodeRecord"),
    "watchbill.model.limits": ("Limit", "Rate"),
    "watchbill.model.queue": ("Queue",),
    "watchbill.model.retry": ("Retry",),
    "watchbill.model.schedule": (
        "Reason",
        "ScheduleFilter",
        "ScheduleMetrics",
        "ScheduleRecord",
        "ScheduleStats",
        "SlotRecord",
    ),
    "watchbill.model.decisions": ("Permanent", "RetryAfter", "Skip", "Snooze"),
    "watchbill.model.steps": (
        "Signal",
        "SignalTimeout",
        "StepError",
        "StepFailed",
        "StepMismatch",
        "StepRecord",
        "StepUnknown",
        "WaitingStep",
    ),
    "watchbill.model.tenant_record": ("ErasureRecord", "TenantRecord"),
    "watchbill.model.unique": ("Debounce", "Unique"),
    "watchbill.payloads": ("PayloadStore",),
    "watchbill.postgres.connect": ("AsyncConnection", "Connection"),
    "watchbill.store.node_connection": ("NameTaken",),
    "watchbill.store.refusals": ("DuplicateJob", "Invalid", "LockLost", "QuotaExceeded", "StaleFence", "WrongDatabase"),
    "watchbill.worker.dependencies": ("Depends",),
    "watchbill.worker.run": ("current_job",),
    "watchbill.worker.step_calls": ("CurrentStep", "current_step"),
    "watchbill.worker.steps": ("AsyncSteps", "Steps"),
}

__all__ = [
    "App",
    "AsyncClient",
    "AsyncConnection",
    "AsyncSteps",
    "Batch",
    "BatchFailed",
    "Call",
    "Client",
    "Connection",
    "CurrentStep",
    "Debounce",
    "Depends",
    "DuplicateJob",
    "ErasureRecord",
    "Flow",
    "GroupRecord",
    "Intervals",
    "Invalid",
    "InvalidSchedule",
    "ItemRefused",
    "Job",
    "JobCanceled",
    "JobFailed",
    "JobFilter",
    "JobRecord",
    "Leadership",
    "Limit",
    "Lock",
    "LockLost",
    "LockNotAcquired",
    "Member",
    "NameTaken",
    "NoSuchGroup",
    "NoSuchJob",
    "NoSuchTenant",
    "NodeRecord",
    "NotCommitted",
    "PayloadStore",
    "Permanent",
    "PinRecord",
    "Queue",
    "QuotaExceeded",
    "Rate",
    "Reason",
    "Rebalance",
    "Retry",
    "RetryAfter",
    "ScheduleFilter",
    "ScheduleMetrics",
    "ScheduleRecord",
    "ScheduleStats",
    "Signal",
    "SignalTimeout",
    "Skip",
    "SlotRecord",
    "Snooze",
    "StaleFence",
    "StepError",
    "StepFailed",
    "StepMismatch",
    "StepRecord",
    "StepUnknown",
    "Steps",
    "Task",
    "Tasks",
    "TenantRecord",
    "ThreadTimeoutWarning",
    "Unique",
    "WaitingStep",
    "WatchbillError",
    "WrongDatabase",
    "__version__",
    "chain",
    "current_job",
    "current_step",
    "group",
]


def __getattr__(name: str) -> Any:
    """Imports a public name at its first use, so that `import watchbill.cron` needs neither psycopg nor pydantic."""
    for module, names in _MODULES.items():
        if name in names:
            from importlib import import_module

            value = globals()[name] = getattr(import_module(module), name)
            return value
    raise AttributeError(f"module 'watchbill' has no attribute {name!r}")

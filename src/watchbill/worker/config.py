"""The configuration of a node, which does not change while it runs."""

from __future__ import annotations

import math
import os
import socket
from dataclasses import dataclass, field
from datetime import time
from uuid import uuid4

from watchbill.alerts.config import AlertConfig
from watchbill.redaction import Redaction
from watchbill.scheduler.declarer import Declared
from watchbill.settings import Settings, make_child_environment
from watchbill.worker.handlers import KeepLogs, Kind
from watchbill.worker.queue_turns import split_weights

FAST_RETRY_SECONDS = 0.5
LONGEST_STATEMENT_SECONDS = 10.0
LONGEST_UPKEEP_SECONDS = 30.0  # for statements that may take longer, such as those of retention; no job waits for them


@dataclass(frozen=True)
class Capacity:
    """How many handlers may run at once: of each kind, and in total."""

    by_kind: dict[Kind, int]
    total: int


@dataclass(frozen=True)
class NodeConfig:
    """The settings of one node, with times in seconds and sizes in bytes."""

    url: str
    listen_url: str | None
    schema: str
    name: str
    app: str
    queues: tuple[str, ...]  # in the order in which they are served, unless they have weights
    capacity: Capacity
    weights: dict[str, int] = field(default_factory=dict)  # the weight of every queue; empty if none was given
    lease: float = 30.0
    heartbeat_interval: float = math.inf  # an interval longer than a third of the lease counts as that third
    survey_interval: float = math.inf
    drain_timeout: float = 30.0
    stuck_after: float = 300.0
    poll_interval: float = 0.1
    poll_max_interval: float = 5.0
    poll_multiplier: float = 2.0
    prepare: bool = True
    pool_size: int = 4  # how many transactional handlers of a kind may run at once: each has a connection of a pool
    once: bool = False  # stop when there is nothing left to do
    scheduler: bool = True  # also enqueue the jobs of schedules
    declared: Declared = Declared()  # noqa: RUF009  (Declared is a tuple, which cannot be changed)
    jobs_per_child: int | None = None
    memory_per_child: int | None = None
    labels: dict[str, str] = field(default_factory=dict)
    takes_over: bool = False  # declare a living node with the same name lost, and take its name
    job_logs: KeepLogs = "failed"  # whose log lines are stored, unless a task says otherwise
    redaction: Redaction = Redaction()  # noqa: RUF009  (frozen) what stored log lines do not show
    retry_delay: float | None = None  # the wait before every further attempt, whatever the jobs' policies say
    health_host: str = "127.0.0.1"
    health_port: int | None = None  # 0 means any free port
    verify_at: time | None = None  # of the day, in the zone of this machine; None: never
    archive_to: str | None = None  # where days of history are written before they are dropped
    alerts: AlertConfig = AlertConfig()  # noqa: RUF009  (an AlertConfig is frozen)
    watches_loop: bool = True  # end the process when a handler blocks the event loop for too long

    @property
    def statement_timeout(self) -> float:
        """How long a statement may wait for its answer until its connection counts as lost. A long lease does not make
        it longer: a node should not wait longer for a dead server because its handlers may run for longer."""
        return min(LONGEST_STATEMENT_SECONDS, max(5.0, self.lease))

    @property
    def child_environment(self) -> dict[str, str]:
        """Environment variables that make an App in a child process use the worker's database, whatever its code
        says."""
        return make_child_environment("the worker", database_url=self.url, schema=self.schema)


def make_config(
    settings: Settings,
    url: str,
    *,
    app: str,
    queues: tuple[str, ...],
    once: bool = False,
    scheduler: bool = True,
    declared: Declared = Declared(),  # noqa: B008  (a tuple)
    takes_over: bool = False,
) -> NodeConfig:
    queues, weights = split_weights(queues)
    return NodeConfig(
        url=url,
        listen_url=settings.listen_url,
        schema=settings.schema,
        name=settings.node_name or make_node_name(),
        app=app,
        queues=queues,
        weights=weights,
        capacity=make_capacity(settings.concurrency),
        lease=settings.lease,
        drain_timeout=settings.drain_timeout,
        stuck_after=settings.stuck_after,
        poll_interval=settings.poll_interval,
        poll_max_interval=settings.poll_max_interval,
        poll_multiplier=settings.poll_multiplier,
        prepare=settings.prepared_statements,
        pool_size=settings.pool_size,
        jobs_per_child=settings.jobs_per_child,
        memory_per_child=None if settings.memory_per_child is None else settings.memory_per_child * 2**20,
        once=once,
        scheduler=scheduler,
        declared=declared,
        takes_over=takes_over,
        labels=dict(settings.labels),
        health_host=settings.health_host,
        health_port=settings.health_port,
        verify_at=None if settings.verify_at == "never" else time.fromisoformat(settings.verify_at),
        archive_to=settings.archive_to,
        alerts=AlertConfig.of_settings(settings),
        job_logs=settings.job_logs,
        redaction=Redaction(settings.redact, settings.redact_text),
        retry_delay=FAST_RETRY_SECONDS if settings.fast_retries else None,
    )


def make_capacity(concurrency: int | None, cores: int | None = None) -> Capacity:
    """Returns how many handlers may run at once: `concurrency`, or without it a number per kind that depends on the
    number of cores."""
    cores = cores or os.cpu_count() or 1
    if concurrency is not None:
        return Capacity({"async": concurrency, "thread": concurrency, "process": min(concurrency, cores)}, concurrency)
    by_kind: dict[Kind, int] = {"async": 10 * cores, "thread": 4 * cores, "process": cores}
    return Capacity(by_kind, sum(by_kind.values()))


def make_node_name() -> str:
    return f"{socket.gethostname()}/{os.getpid()}/{uuid4().hex[:6]}"

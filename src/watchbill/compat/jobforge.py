"""JobForge's client and worker, on Watchbill.

`JobForgeClient` calls the functions that `watchbill db install jobforge` has created. The worker runs the tasks of an
App, with the environment variables of JobForge's worker:

    python -m watchbill.compat.jobforge MODULE:APP [--once] [--interval=MS]
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import math
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from watchbill.app.application import App
from watchbill.errors import AppNotFound, SchemaError, SettingsError, WatchbillError
from watchbill.store.facades import Facade, installed_facades
from watchbill.store.refusals import translate
from watchbill.worker.run import current_job

if TYPE_CHECKING:
    from watchbill.node import Node

QUEUE = "jobforge"
CLEANUP = "system.cleanup.old_jobs"
SYSTEM_TENANT = "system"
STALE_AFTER = timedelta(minutes=5)


def _accept_object(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a variant of a method for its name in camelCase. It takes the arguments of the method, or one dictionary
    with all of them, as in JavaScript."""

    def call(self: JobForgeClient, *given: Any, **more: Any) -> Any:
        if len(given) == 1 and isinstance(given[0], Mapping):
            return method(self, **given[0], **more)
        return method(self, *given, **more)

    call.__doc__ = method.__doc__
    return call


class JobForgeClient:
    """The client of JobForge. It returns jobs as dictionaries, in which times and ids are text, as JobForge does.

    Without an App, `database_url` or the environment says where the database is.
    """

    def __init__(self, database_url: str | None = None, *, app: App | None = None) -> None:
        if database_url is not None and app is not None:
            raise SettingsError("Give JobForgeClient a database_url or an app, not both.")
        self._app = app or App(database_url, name="jobforge")

    def enqueue_job(
        self,
        *,
        tenant_id: str | UUID,
        type: str,
        payload: Mapping[str, Any],
        idempotency_key: str | None = None,
        run_at: datetime | None = None,
        max_attempts: int = 5,
    ) -> dict[str, Any]:
        """Enqueues a job. Returns the new job, or the earlier job with the same tenant, type and key."""
        [job] = self.enqueue_jobs(
            [
                {
                    "tenant_id": tenant_id,
                    "type": type,
                    "payload": payload,
                    "idempotency_key": idempotency_key,
                    "run_at": run_at,
                    "max_attempts": max_attempts,
                }
            ]
        )
        return job

    def enqueue_jobs(self, jobs: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Enqueues many jobs in one statement. Each has the arguments of `enqueue_job`."""
        given = [_as_new_job(job) for job in jobs]
        rows = self._execute_statement(
            "SELECT {}(n.job->>'tenant_id', n.job->>'type', coalesce(n.job->'payload', '{{}}'), "
            "n.job->>'idempotency_key', coalesce((n.job->>'run_at')::timestamptz, now()), "
            "coalesce((n.job->>'max_attempts')::int, 5)) FROM jsonb_array_elements(%s) n(job)",
            "enqueue_job",
            Jsonb(given),
        )
        return [job for (job,) in rows]

    def claim_jobs(self, worker_id: str, limit: int = 10) -> list[dict[str, Any]]:
        """Claims up to `limit` jobs for a worker. The worker of an App claims its jobs without this call."""
        return list(self._call_function("claim_jobs", worker_id, limit))

    def heartbeat_job(self, job_id: str | UUID, worker_id: str) -> None:
        self._call_function("heartbeat_job", UUID(str(job_id)), worker_id)

    def complete_job(
        self,
        job_id: str | UUID,
        worker_id: str,
        status: str,
        *,
        error: Mapping[str, Any] | None = None,
        result: Any = None,
        artifact_ref: str | None = None,
    ) -> None:
        """Ends an attempt. `status` is `succeeded` or `failed`."""
        found = None if error is None else Jsonb(dict(error))
        stored = None if result is None else Jsonb(result)
        self._call_function("complete_job", UUID(str(job_id)), worker_id, status, found, stored, artifact_ref)

    def cancel_job(self, job_id: str | UUID, tenant_id: str | UUID) -> None:
        self._call_function("cancel_job", UUID(str(job_id)), str(tenant_id))

    def reschedule_job(self, job_id: str | UUID, tenant_id: str | UUID, run_at: datetime) -> None:
        self._call_function("reschedule_job", UUID(str(job_id)), str(tenant_id), run_at)

    def list_jobs(self, tenant_id: str | UUID, filters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Lists the jobs of a tenant, newest first. Filters are status, type, limit and offset."""
        return list(self._call_function("list_jobs", str(tenant_id), Jsonb(dict(filters or {}))))

    def get_job(self, job_id: str | UUID, tenant_id: str | UUID) -> dict[str, Any] | None:
        """Returns a job, or None if the tenant has no such job."""
        job = self._call_function("_find_job", UUID(str(job_id)))
        return dict(job) if job is not None and job["tenant_id"] == str(tenant_id) else None

    def get_result(self, job_id: str | UUID, tenant_id: str | UUID) -> dict[str, Any] | None:
        """Returns the result of a job that has succeeded, with its `artifact_ref`; None if there is none."""
        rows = self._execute_statement(
            "SELECT to_jsonb(r) FROM {} r WHERE r.job_id = %s AND r.tenant_id = %s",
            "job_results",
            UUID(str(job_id)),
            str(tenant_id),
        )
        return dict(rows[0][0]) if rows else None

    enqueueJob = _accept_object(enqueue_job)  # noqa: N815  (as JavaScript writes it)
    enqueueJobs = _accept_object(enqueue_jobs)  # noqa: N815
    claimJobs = _accept_object(claim_jobs)  # noqa: N815
    heartbeatJob = _accept_object(heartbeat_job)  # noqa: N815
    completeJob = _accept_object(complete_job)  # noqa: N815
    cancelJob = _accept_object(cancel_job)  # noqa: N815
    rescheduleJob = _accept_object(reschedule_job)  # noqa: N815
    listJobs = _accept_object(list_jobs)  # noqa: N815
    getJob = _accept_object(get_job)  # noqa: N815
    getResult = _accept_object(get_result)  # noqa: N815

    def close(self) -> None:
        self._app.close()

    @cached_property
    def _facade(self) -> Facade:
        schema = self._app.settings.schema
        with self._app.client.connection() as connection:
            installed = [facade for facade in installed_facades(connection, schema) if facade.name == "jobforge"]
        if not installed:
            raise SchemaError("The facade jobforge is not installed.", hint="Run `watchbill db install jobforge`.")
        return installed[0]

    def _call_function(self, function: str, *arguments: Any) -> Any:
        places = ", ".join(["%s"] * len(arguments))
        [(answer,)] = self._execute_statement(f"SELECT {{}}({places})", function, *arguments)
        return answer

    def _execute_statement(self, statement: str, name: str, *arguments: Any) -> list[tuple[Any, ...]]:
        place = sql.Identifier(self._facade.schema, self._facade.prefix + name)
        try:
            with self._app.client.connection() as connection:
                # Safe from injection, because all statements are constants of this module.
                query = sql.SQL(statement).format(place)
                return connection.execute(query, arguments).fetchall()
        except psycopg.Error as error:
            raise translate(error, self._facade.engine) from error


def _as_new_job(job: Mapping[str, Any]) -> dict[str, Any]:
    run_at = job.get("run_at")
    return {**job, "tenant_id": str(job["tenant_id"]), "run_at": run_at.isoformat() if run_at else None}


def add_cleanup_task(app: App) -> None:
    """Declares the task that JobForge's runbook enqueues once a day: it deletes succeeded jobs that ended more than
    `days_to_keep` days ago, those of its tenant, or all for the tenant `system`."""
    if CLEANUP in app.tasks:
        return

    @app.task(type=CLEANUP, queue=QUEUE)
    def clean_up_old_jobs(days_to_keep: int = 30) -> dict[str, int]:
        tenant = None if current_job().tenant == SYSTEM_TENANT else current_job().tenant
        purge = sql.SQL(
            "SELECT {}.purge(ARRAY['succeeded'], tenant => %s, finished_before => {}.now() - make_interval(days => %s))"
        ).format(*[sql.Identifier(app.settings.schema)] * 2)
        deleted = 0
        with app.client.connection() as connection:
            while (row := connection.execute(purge, (tenant, days_to_keep)).fetchone()) and row[0]:
                deleted += row[0]
        return {"deleted": deleted}


def read_environment(environment: Mapping[str, str], interval: float | None = None) -> dict[str, Any]:
    """Returns the configuration of a node for the environment variables of JobForge's worker. `interval` is the option
    --interval, in milliseconds."""

    def number(name: str, unit: float) -> float | None:
        text = environment.get(name)
        try:
            return None if text is None else float(text) / unit
        except ValueError:
            raise SettingsError(f"{name}={text!r} is invalid.", hint="Give a number.") from None

    beat = number("HEARTBEAT_INTERVAL_MS", 1000)
    found = {
        "poll_interval": interval / 1000 if interval is not None else number("POLL_INTERVAL_MS", 1000),
        "poll_max_interval": number("MAX_POLL_INTERVAL_MS", 1000),
        "poll_multiplier": number("IDLE_BACKOFF_MULTIPLIER", 1),
        "heartbeat_interval": beat,
        # At least three intervals, so that a heartbeat that is late does not cost the node its jobs.
        "lease": max(STALE_AFTER.total_seconds(), 3 * (beat or 0)),
        "node_name": environment.get("WORKER_ID"),
    }
    return {name: value for name, value in found.items() if value is not None}


def make_worker(app: App, environment: Mapping[str, str], *, once: bool = False, interval: float | None = None) -> Node:
    """Makes a node that serves the queue of JobForge and the queues of the App's tasks."""
    add_cleanup_task(app)
    queues = app.settings.queues or tuple(sorted(app.queue_names()))
    settings = read_environment(environment, interval)
    beat = settings.pop("heartbeat_interval", math.inf)
    node = app.make_node(once=once, queues=tuple(dict.fromkeys((QUEUE, *queues))), **settings)
    node.config = replace(node.config, heartbeat_interval=beat)
    return node


def find_app(reference: str) -> App:
    module, _, name = reference.partition(":")
    try:
        found = getattr(importlib.import_module(module), name or "app")
    except (ImportError, AttributeError) as error:
        raise AppNotFound(f"There is no App at {reference!r}: {error}.", hint="Give MODULE:APP.") from error
    if not isinstance(found, App):
        raise AppNotFound(f"{reference!r} is not an App.", hint="Give MODULE:APP.")
    return found


async def _run_until_signal(node: Node) -> None:
    """Runs the node until it has ended. The first signal drains it, and the second stops it at once."""
    loop, signals = asyncio.get_running_loop(), 0

    def stop() -> None:
        nonlocal signals
        signals += 1
        (node.drain if signals == 1 else node.stop)()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    await node.run()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m watchbill.compat.jobforge", description="Runs the jobs of an App.")
    parser.add_argument("application", metavar="MODULE:APP")
    parser.add_argument("--once", action="store_true", help="stop when no job is left to run")
    parser.add_argument("--interval", type=float, metavar="MS", help="the first pause between two looks for jobs")
    given = parser.parse_args(arguments)
    try:
        app = find_app(given.application)
        app.ensure_usable()
        node = make_worker(app, os.environ, once=given.once, interval=given.interval)
    except WatchbillError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    asyncio.run(_run_until_signal(node))
    return node.exit_code


if __name__ == "__main__":
    sys.exit(main())

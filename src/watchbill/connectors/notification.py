"""What a webhook says of a job that has ended: `task.using(notify=Webhook("crm"))`."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from watchbill.app.application import App
from watchbill.client import endpoint_operations, job_operations
from watchbill.client.job_operations import NoSuchJob
from watchbill.model.decisions import Permanent, Skip, Snooze
from watchbill.redaction import Redaction
from watchbill.worker.run import Run

UNFINISHED_SECONDS = 30.0  # the job runs again, and this webhook has not been sent since


async def describe_ending(app: App[Any], run: Run, notify: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Returns the type and the data of the webhook, and keeps them in the payload of the delivery: each later try must
    send the same bytes, and the job may have been retried or purged by then. Skips a job that has ended in a state that
    is not wanted."""
    try:
        job_id, wanted = UUID(notify["job"]), notify["on"]
    except (KeyError, TypeError, ValueError):
        raise Permanent("notify has no job, or no states") from None
    try:
        job = await app.producer.arun_apart(job_operations.get(job_id))
        if job.tenant != run.tenant:  # any producer can write a payload with the id of another tenant's job
            raise NoSuchJob(job_id)
    except NoSuchJob:
        raise Skip(f"the job {job_id} is not kept any more") from None
    if job.finished_at is None:
        raise Snooze(UNFINISHED_SECONDS)
    if job.state not in wanted:
        raise Skip(f"the job is {job.state}")
    redaction = Redaction(app.settings.redact, app.settings.redact_text)
    error = redaction.hide("error", job.error or {}, type=job.type)
    data: dict[str, Any] = {
        "id": str(job.id),
        "type": job.type,
        "tenant": job.tenant,
        "state": job.state,
        "attempt": job.attempt,
        "created_at": _show(job.created_at),
        "started_at": _show(job.started_at),
        "finished_at": _show(job.finished_at),
    }
    if error:
        data["error"] = {name: error.get(name) for name in ("kind", "type", "message")}
    if notify.get("result"):
        data["result"] = redaction.hide("result", job.result, type=job.type)
    keeping = endpoint_operations.keep_notification(
        run.id, run.fence, job.id, job.finished_at, f"job.{job.state}", data
    )
    kept = await app.producer.arun_apart(keeping)
    if kept is None:
        raise Snooze(UNFINISHED_SECONDS)
    return kept["type"], kept["data"]


def _show(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()

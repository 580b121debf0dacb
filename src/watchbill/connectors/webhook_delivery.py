"""The task `connector.webhook.deliver`: sends a signed webhook, with the same id and the same bytes at each try."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson

from watchbill.connectors.exchange import Answer, NoAnswer, Request
from watchbill.connectors.http_request import describe_answer, read_retry_after
from watchbill.connectors.outgoing import OWN_HEADERS, Outgoing, Place, RequestFailed, limit_timeout, merge_headers
from watchbill.model.decisions import Permanent, RetryAfter
from watchbill.model.durations import seconds
from watchbill.model.retry import Retry
from watchbill.webhooks import make_headers
from watchbill.worker.run import Run

logger = logging.getLogger("watchbill.connectors")

TIMEOUT_SECONDS = 20.0
DELAYS = ("5s", "5m", "30m", "2h", "5h", "10h", "14h", "20h", "24h")
RETRY = Retry(max_attempts=10, backoff="list", base=5, factor=1, cap="24h", jitter=0.2, delays=DELAYS)
GONE = 410
SHOWN_BYTES = 2_000


async def deliver(
    run: Run, outgoing: Outgoing, *, endpoint: str | None, url: str | None, type: str, data: Any
) -> dict[str, Any]:
    """Delivers the webhook of a job, and returns the result of the job."""
    if not type or len(type) > 200:
        raise Permanent("type must be a text of 1 to 200 characters, such as order.paid")
    place = await outgoing.find_place(run.tenant, kind="webhook", endpoint=endpoint, path="", query="", url=url)
    body = _make_body(run.id, type, data)
    try:
        headers = make_headers(str(run.id), body, place.signing)
    except ValueError as error:  # does not repeat the secret
        raise RequestFailed(f"endpoint {endpoint!r}: {error}") from None
    if not place.signing:  # a free address has no secrets
        del headers["webhook-signature"]
    request = Request(
        "POST",
        place.target,
        headers=merge_headers(OWN_HEADERS, place.headers, (("Content-Type", "application/json"), *headers.items())),
        body=body,
        timeout=limit_timeout(run, place, None if place.endpoint and place.endpoint.timeout else TIMEOUT_SECONDS),
        most_bytes=SHOWN_BYTES,
        truncate=True,
        needs_body=False,
    )
    try:
        answer = await outgoing.send(run, place, request, endpoint)
    except (NoAnswer, Permanent) as error:
        await _report(outgoing, run.tenant, endpoint, place, "failed")
        if isinstance(error, Permanent):
            raise
        raise RequestFailed(str(error)) from None
    if 200 <= answer.status < 300:
        await _report(outgoing, run.tenant, endpoint, place, "succeeded")
        return {"status": answer.status, "seconds": round(answer.seconds, 3), "tries": run.attempt}
    await _report(outgoing, run.tenant, endpoint, place, "gone" if answer.status == GONE else "failed")
    raise _choose_error(run, place, answer)


def _choose_error(run: Run, place: Place, answer: Answer) -> Exception:
    message = describe_answer(place.redaction, answer)
    if answer.status == GONE:
        return Permanent(message)
    delay = read_retry_after(answer)
    # A receiver, or a proxy before it, may ask for more time, and not for less: ten tries in a few seconds would
    # lose the webhook.
    if delay is None or delay <= seconds(DELAYS[min(run.attempt, len(DELAYS)) - 1]):
        return RequestFailed(message)
    return RetryAfter(delay, message)


async def _report(outgoing: Outgoing, tenant: str, endpoint: str | None, place: Place, outcome: str) -> None:
    if endpoint is not None and await outgoing.report(tenant, endpoint, place, outcome):
        logger.error(
            "The endpoint %s of tenant %s was disabled: %s. Enable it with `watchbill endpoints enable`",
            endpoint, tenant, "it is gone" if outcome == "gone" else "no delivery has succeeded for five days",
        )  # fmt: skip


def _make_body(job_id: UUID, type: str, data: Any) -> bytes:
    """The time of the event is that in the id of the job, so that each try sends the same bytes."""
    content = {"type": type, "data": data}
    if job_id.version == 7:
        made = datetime.fromtimestamp((job_id.int >> 80) / 1_000, UTC)
        content = {
            "type": type,
            "timestamp": made.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "data": data,
        }
    return orjson.dumps(content)

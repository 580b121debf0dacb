"""add_connectors: adds the tasks that send requests to an App. A worker without them handles none of these jobs."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from typing import Any, Literal

from watchbill.app.application import App
from watchbill.connectors.guard import Resolve, resolve
from watchbill.connectors.http_request import DEFAULT_MOST_BYTES, send_request
from watchbill.connectors.notification import describe_ending
from watchbill.connectors.outgoing import Choices, Outgoing
from watchbill.connectors.webhook_delivery import RETRY, deliver
from watchbill.model.retry import Retry
from watchbill.model.webhook import WEBHOOK_DELIVERY, WEBHOOK_QUEUE
from watchbill.worker.dependencies import Depends
from watchbill.worker.run import current_job

HTTP_REQUEST = "connector.http.request"


def add_connectors(
    app: App[Any],
    *,
    urls: Literal["public", "endpoints"] = "public",
    allow_http: bool = False,
    tls: ssl.SSLContext | None = None,
    resolve: Resolve = resolve,
) -> None:
    """Adds the tasks `connector.http.request` and `connector.webhook.deliver`.

    `urls="endpoints"` refuses jobs with a free address. `allow_http` allows http beside https. `tls` is a context with
    other certificates than OpenSSL's own. `resolve` is another way to find the addresses of a name.
    """
    if urls not in ("public", "endpoints"):
        raise ValueError(f"add_connectors(urls={urls!r}) is invalid: it must be 'public' or 'endpoints'")
    choices = Choices(app, urls == "public", allow_http, tls, resolve)

    async def open_outgoing() -> AsyncIterator[Outgoing]:
        outgoing = await Outgoing.open(choices)
        yield outgoing
        await outgoing.aclose()

    opened: Outgoing = Depends(open_outgoing)
    _add_http_request(app, opened)
    _add_webhook_delivery(app, opened)


def _add_http_request(app: App[Any], opened: Outgoing) -> None:
    @app.task(type=HTTP_REQUEST, retry=Retry(max_attempts=10))
    async def request(
        *,
        endpoint: str | None = None,
        path: str = "",
        url: str | None = None,
        method: str = "GET",
        query: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        json: Any = None,
        body: str | None = None,
        body_base64: str | None = None,
        expect: list[int] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  (a field of the payload)
        max_response: int = DEFAULT_MOST_BYTES,
        truncate: bool = False,
        redirects: int = 0,
        retry_unsafe: bool = True,
        keep_headers: list[str] | None = None,
        receiver: str | None = None,
        outgoing: Outgoing = opened,
    ) -> dict[str, Any]:
        """Sends a request, and keeps the answer as the result of the job. SQL sets `receiver`."""
        return await send_request(
            current_job(),
            outgoing,
            endpoint=endpoint,
            path=path,
            url=url,
            method=method,
            query=query or {},
            headers=headers or {},
            json=json,
            body=body,
            body_base64=body_base64,
            expect=expect,
            timeout=timeout,
            max_response=max_response,
            truncate=truncate,
            redirects=redirects,
            retry_unsafe=retry_unsafe,
            keep_headers=keep_headers,
        )


def _add_webhook_delivery(app: App[Any], opened: Outgoing) -> None:
    @app.task(type=WEBHOOK_DELIVERY, queue=WEBHOOK_QUEUE, retry=RETRY)
    async def delivery(
        *,
        type: str = "",
        data: Any = None,
        endpoint: str | None = None,
        url: str | None = None,
        notify: dict[str, Any] | None = None,
        receiver: str | None = None,
        outgoing: Outgoing = opened,
    ) -> dict[str, Any]:
        """Sends a signed webhook to an endpoint of kind webhook, or an unsigned one to a free address. SQL sets
        `receiver`, the queue and the limit, and `notify` in the job that tells how another one has ended."""
        run = current_job()
        # The payload has a type from the first try on.
        told = (type, data) if type or notify is None else await describe_ending(app, run, notify)
        return await deliver(run, outgoing, endpoint=endpoint, url=url, type=told[0], data=told[1])

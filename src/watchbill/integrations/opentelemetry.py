"""OpenTelemetry: a span for each enqueue and for each attempt, in one trace (extra `otel`).

The context of the producer's span is stored in the job's metadata, as the configured propagator writes it, together
with the baggage. The span of an attempt is a child of the producer's span, and has a link to it. It is made where the
handler runs, also in a thread or a child process, and ends with the handler. Spans that the handler opens are its
children.

Attributes follow the semantic conventions for messaging where these have a name for them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import orjson
from opentelemetry import propagate, trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, TracerProvider

from watchbill._version import __version__
from watchbill.model.decisions import RetryAfter, Skip, Snooze
from watchbill.model.job import Enqueued, NewJob
from watchbill.worker.run import Run

if TYPE_CHECKING:
    from watchbill.app.application import App

_META_KEY = "trace"


def instrument(app: App, *, tracer_provider: TracerProvider | None = None) -> None:
    """Adds tracing to an App. Call this once per App. Without `tracer_provider` the global one is used."""
    tracer = trace.get_tracer("watchbill", __version__, tracer_provider)
    app.around_enqueue(_make_enqueue_middleware(tracer))
    app.around_run(_make_run_middleware(tracer))


def _make_enqueue_middleware(tracer: Tracer) -> Callable[[NewJob], Generator[NewJob, Enqueued, None]]:
    def around(job: NewJob) -> Generator[NewJob, Enqueued, None]:
        """Makes a span for an enqueue. The span does not become the current one, because otherwise the spans of jobs
        that are sent together would be inside each other."""
        span = tracer.start_span(
            f"enqueue {job.type}",
            kind=SpanKind.PRODUCER,
            attributes=_make_job_attributes(job) | _make_operation_attributes("enqueue", "send"),
        )
        try:
            answer = yield _add_context(job, span)
            span.set_attributes({"messaging.message.id": str(answer.id), "watchbill.job.created": answer.created})
        except BaseException as error:
            _record_failure(span, error)
            raise
        finally:
            span.end()

    return around


def _make_run_middleware(tracer: Tracer) -> Callable[[Run], Generator[None, None, None]]:
    def around(job: Run) -> Generator[None, None, None]:
        sender = propagate.extract(job.meta.get(_META_KEY) or {})
        sent_by = trace.get_current_span(sender).get_span_context()
        with tracer.start_as_current_span(
            f"process {job.type}",
            context=sender,
            kind=SpanKind.CONSUMER,
            links=[Link(sent_by)] if sent_by.is_valid else [],
            attributes=_make_job_attributes(job)
            | _make_operation_attributes("process", "process")
            | _make_run_attributes(job),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except (Skip, Snooze, RetryAfter) as signal:  # not an error, because a handler raises these on purpose
                span.set_attribute("watchbill.job.outcome", type(signal).__name__.lower())
                raise
            except BaseException as error:
                _record_failure(span, error)
                raise

    return around


def _add_context(job: NewJob, span: Span) -> NewJob:
    carrier: dict[str, str] = {}
    propagate.inject(carrier, trace.set_span_in_context(span))
    if not carrier:
        return job
    meta = orjson.loads(job.meta) if job.meta else {}
    return job._replace(meta=orjson.dumps(meta | {_META_KEY: carrier}))


def _make_job_attributes(job: NewJob | Run) -> dict[str, Any]:
    return {
        "messaging.system": "watchbill",
        "messaging.destination.name": job.queue,
        "messaging.message.id": str(job.id),
        "watchbill.job.type": job.type,
        "watchbill.tenant": job.tenant,
    }


def _make_operation_attributes(name: str, kind: str) -> dict[str, str]:
    return {"messaging.operation.name": name, "messaging.operation.type": kind}


def _make_run_attributes(job: Run) -> dict[str, Any]:
    return {
        "watchbill.job.attempt": job.attempt,
        "watchbill.job.max_attempts": job.max_attempts,
        "messaging.message.body.size": len(job.claimed.raw_payload) - 1,
    }


def _record_failure(span: Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR, str(error)))

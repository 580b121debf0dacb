"""OpenTelemetry: a span for each enqueue and for each attempt, in one trace (extra `otel`).

The producer's span context is stored in the job's meta, as the configured propagator writes it, so that baggage comes
along. An attempt's span is a child of it and has a link to it. It is made where the handler runs, also in a thread or a
child process, and ends with the handler; spans that the handler opens are its children.

Attributes follow the semantic conventions for messaging where these have a name for them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import orjson
from opentelemetry import propagate, trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, TracerProvider

from watchbill._version import __version__
from watchbill.model.job import Enqueued, NewJob
from watchbill.model.signals import RetryAfter, Skip, Snooze
from watchbill.worker.run import Run

if TYPE_CHECKING:
    from watchbill.app.application import App

_META_KEY = "trace"


def instrument(app: App, *, tracer_provider: TracerProvider | None = None) -> None:
    """Adds tracing to an App. Call it once; without `tracer_provider` the global one is used."""
    tracer = trace.get_tracer("watchbill", __version__, tracer_provider)
    app.around_enqueue(_around_enqueue(tracer))
    app.around_run(_around_run(tracer))


def _around_enqueue(tracer: Tracer) -> Callable[[NewJob], Generator[NewJob, Enqueued, None]]:
    def around(job: NewJob) -> Generator[NewJob, Enqueued, None]:
        """The span is not made current: jobs that are sent together are not inside each other."""
        span = tracer.start_span(
            f"enqueue {job.type}",
            kind=SpanKind.PRODUCER,
            attributes=_job_attributes(job) | _operation_attributes("enqueue", "send"),
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


def _around_run(tracer: Tracer) -> Callable[[Run], Generator[None, None, None]]:
    def around(job: Run) -> Generator[None, None, None]:
        sender = propagate.extract(job.meta.get(_META_KEY) or {})
        sent_by = trace.get_current_span(sender).get_span_context()
        with tracer.start_as_current_span(
            f"process {job.type}",
            context=sender,
            kind=SpanKind.CONSUMER,
            links=[Link(sent_by)] if sent_by.is_valid else [],
            attributes=_job_attributes(job) | _operation_attributes("process", "process") | _run_attributes(job),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except (Skip, Snooze, RetryAfter) as signal:  # raised on purpose, so not an error
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


def _job_attributes(job: NewJob | Run) -> dict[str, Any]:
    return {
        "messaging.system": "watchbill",
        "messaging.destination.name": job.queue,
        "messaging.message.id": str(job.id),
        "watchbill.job.type": job.type,
        "watchbill.tenant": job.tenant,
    }


def _operation_attributes(name: str, kind: str) -> dict[str, str]:
    return {"messaging.operation.name": name, "messaging.operation.type": kind}


def _run_attributes(job: Run) -> dict[str, Any]:
    return {
        "watchbill.job.attempt": job.attempt,
        "watchbill.job.max_attempts": job.max_attempts,
        "messaging.message.body.size": len(job.claimed.raw_payload) - 1,
    }


def _record_failure(span: Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR, str(error)))

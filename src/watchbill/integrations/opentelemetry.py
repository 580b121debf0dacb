"""OpenTelemetry: a span for each enqueue and for each attempt, in one trace (extra `otel`).

The context of the producer's span is stored in the job's metadata, as the configured propagator writes it, together
with the baggage. The span of an attempt is a child of the producer's span, and has a link to it. It is made where the
handler runs, also in a thread or a child process, and ends with the handler. Spans that the handler opens are its
children.

Attributes follow the semantic conventions for messaging where these have a name for them.

With `metrics=True` enqueues and attempts are also measured, inside their spans, so that exemplars have trace ids.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import orjson
from opentelemetry import metrics as otel_metrics
from opentelemetry import propagate, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, TracerProvider

from watchbill._version import __version__
from watchbill.model.decisions import RetryAfter, Skip, Snooze
from watchbill.model.job import Enqueued, NewJob
from watchbill.worker.run import Run

if TYPE_CHECKING:
    from watchbill.app.application import App

_META_KEY = "trace"
# Names of the semantic conventions for messaging. They are still in development there.
_SENT_MESSAGES = "messaging.client.sent.messages"
_SEND_DURATION = "messaging.client.operation.duration"
_CONSUMED_MESSAGES = "messaging.client.consumed.messages"
_PROCESS_DURATION = "messaging.process.duration"
_ACTIVE_RUNS = "watchbill.active_runs"
_SEND_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 10.0)
_RUN_BOUNDS = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 30.0, 120.0, 300.0, 1200.0, 3600.0)


def instrument(
    app: App,
    *,
    tracer_provider: TracerProvider | None = None,
    metrics: bool = False,
    meter_provider: MeterProvider | None = None,
) -> None:
    """Adds tracing to an App, and with `metrics` also metrics. Call this once per App. Without providers the global
    ones are used."""
    tracer = trace.get_tracer("watchbill", __version__, tracer_provider)
    meters = _Meters(meter_provider if metrics else otel_metrics.NoOpMeterProvider())
    app.around_enqueue(_make_enqueue_middleware(tracer, meters))
    app.around_run(_make_run_middleware(tracer, meters))


class _Meters:
    """What is measured, by queue and type. Tenants and ids are not attributes, because there may be very many."""

    def __init__(self, provider: MeterProvider | None) -> None:
        meter = otel_metrics.get_meter("watchbill", __version__, provider)
        self._sent = meter.create_counter(_SENT_MESSAGES, "{message}", "Jobs that were enqueued.")
        self._send_seconds = meter.create_histogram(
            _SEND_DURATION, "s", "How long it takes to enqueue a job.", explicit_bucket_boundaries_advisory=_SEND_BOUNDS
        )
        self._consumed = meter.create_counter(_CONSUMED_MESSAGES, "{message}", "Jobs that handlers were called with.")
        self._run_seconds = meter.create_histogram(
            _PROCESS_DURATION, "s", "How long handlers run.", explicit_bucket_boundaries_advisory=_RUN_BOUNDS
        )
        self._active = meter.create_up_down_counter(_ACTIVE_RUNS, "{run}", "Handlers that run now.")

    def note_enqueue(self, job: NewJob, span: Span, seconds: float, error: BaseException | None) -> None:
        labels, context = _make_labels(job, "enqueue", "send"), trace.set_span_in_context(span)
        if error is not None:
            labels["error.type"] = type(error).__qualname__
        self._sent.add(1, labels, context)
        self._send_seconds.record(seconds, labels, context)

    @contextmanager
    def measure_run(self, job: Run) -> Iterator[None]:
        began, labels = time.monotonic(), _make_labels(job, "process", "process")
        active = dict(labels)
        self._active.add(1, active)
        try:
            yield
        except (Skip, Snooze, RetryAfter):
            raise
        except BaseException as error:
            labels["error.type"] = type(error).__qualname__
            raise
        finally:
            self._active.add(-1, active)
            self._consumed.add(1, labels)
            self._run_seconds.record(time.monotonic() - began, labels)


def _make_labels(job: NewJob | Run, name: str, kind: str) -> dict[str, str]:
    return {
        "messaging.system": "watchbill",
        "messaging.destination.name": job.queue,
        "watchbill.job.type": job.type,
        **_make_operation_attributes(name, kind),
    }


def _make_enqueue_middleware(tracer: Tracer, meters: _Meters) -> Callable[[NewJob], Generator[NewJob, Enqueued, None]]:
    def around(job: NewJob) -> Generator[NewJob, Enqueued, None]:
        """Makes a span for an enqueue. The span does not become the current one, because otherwise the spans of jobs
        that are sent together would be inside each other."""
        span = tracer.start_span(
            f"enqueue {job.type}",
            kind=SpanKind.PRODUCER,
            attributes=_make_job_attributes(job) | _make_operation_attributes("enqueue", "send"),
        )
        began, failure = time.monotonic(), None
        try:
            answer = yield _add_context(job, span)
            span.set_attributes({"messaging.message.id": str(answer.id), "watchbill.job.created": answer.created})
        except BaseException as error:
            failure = error
            _record_failure(span, error)
            raise
        finally:
            meters.note_enqueue(job, span, time.monotonic() - began, failure)
            span.end()

    return around


def _make_run_middleware(tracer: Tracer, meters: _Meters) -> Callable[[Run], Generator[None, None, None]]:
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
                with meters.measure_run(job):
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

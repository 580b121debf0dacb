"""Traced tasks, one of each kind. A child process writes its spans to a file, as a real one would to a collector."""

from __future__ import annotations

import os

from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.worker.span_file import SpanFile
from watchbill import App, Permanent, Retry, Skip, current_job
from watchbill.integrations.opentelemetry import instrument

provider = TracerProvider()
memory = InMemorySpanExporter()
exporter: SpanExporter = SpanFile(os.environ["TEST_SPANS"]) if "TEST_SPANS" in os.environ else memory
provider.add_span_processor(SimpleSpanProcessor(exporter))
tracer = trace.get_tracer("shop", tracer_provider=provider)

app = App()
metric_reader = InMemoryMetricReader()
instrument(app, tracer_provider=provider, metrics=True, meter_provider=MeterProvider(metric_readers=[metric_reader]))


@app.task
async def on_loop() -> str:
    with tracer.start_as_current_span("work"):
        return trace_id()


@app.task
def in_thread() -> str:
    with tracer.start_as_current_span("work"):
        return trace_id()


@app.task(executor="process")
def in_process() -> str:
    with tracer.start_as_current_span("work"):
        return trace_id()


@app.task(retry=Retry(max_attempts=2, base=0))
async def fails() -> None:
    raise (ValueError if current_job().attempt == 1 else Permanent)("broken")


@app.task
async def skips() -> None:
    raise Skip("nothing to do")


@app.task
async def enqueues_another() -> None:
    await on_loop.aenqueue()


def trace_id() -> str:
    return format(trace.get_current_span().get_span_context().trace_id, "032x")

"""OpenTelemetry: one trace from the enqueue to the end of the last attempt, through loop, threads and processes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry.context import attach, detach
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from tests.worker import traced_tasks as tasks
from tests.worker.conftest import Workbench
from watchbill.settings import Settings
from watchbill.store.refusals import Invalid


@pytest.fixture
def span_file(tmp_path: Path) -> Path:
    return tmp_path / "spans"


@pytest.fixture
def bench(schema_database: str, span_file: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workbench]:
    monkeypatch.setenv("WATCHBILL_DATABASE_URL", schema_database)
    monkeypatch.setenv("TEST_SPANS", str(span_file))
    workbench = Workbench(schema_database)
    workbench.app = tasks.app
    tasks.app.producer.replace_runtime(None)
    tasks.app.use(Settings.load(drain_timeout=5, poll_interval=0.01, poll_max_interval=0.05))
    tasks.memory.clear()
    yield workbench
    tasks.app.close()


def spans(name: str) -> list[ReadableSpan]:
    return [span for span in tasks.memory.get_finished_spans() if span.name == name]


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def parent(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def written(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize("task", [tasks.on_loop, tasks.in_thread], ids=["loop", "thread"])
async def test_attempt_span_is_a_child_of_its_enqueue_span(bench: Workbench, task: Any) -> None:
    with tasks.tracer.start_as_current_span("request") as request:
        job = await task.aenqueue()
    await bench.work_off()
    [sent], [processed], [work] = spans(f"enqueue {task.type}"), spans(f"process {task.type}"), spans("work")
    assert (sent.kind, processed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert parent(sent) == (request.get_span_context().trace_id, request.get_span_context().span_id)
    assert parent(processed) == ids(sent)
    assert [(link.context.trace_id, link.context.span_id) for link in processed.links] == [ids(sent)]
    assert parent(work) == ids(processed)
    common = {
        "messaging.system": "watchbill",
        "messaging.destination.name": "default",
        "messaging.message.id": str(job.id),
        "watchbill.job.type": task.type,
        "watchbill.tenant": "default",
    }
    assert attributes(sent) == common | {
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "watchbill.job.created": True,
    }
    assert attributes(processed) == common | {
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.message.body.size": 2,
        "watchbill.job.attempt": 1,
        "watchbill.job.max_attempts": 10,
    }


async def test_child_process_continues_the_trace(bench: Workbench, span_file: Path) -> None:
    job = await tasks.in_process.aenqueue()
    await bench.work_off()
    [sent] = spans(f"enqueue {tasks.in_process.type}")
    assert await job.aresult(timeout=0) == format(ids(sent)[0], "032x")
    work, processed = written(span_file)
    assert (work["name"], processed["name"]) == ("work", f"process {tasks.in_process.type}")
    assert work["parent_id"] == processed["context"]["span_id"]
    assert processed["parent_id"] == f"0x{ids(sent)[1]:016x}"
    assert processed["links"][0]["context"]["span_id"] == processed["parent_id"]


async def test_each_attempt_has_a_span_and_only_failures_are_errors(bench: Workbench) -> None:
    await tasks.fails.aenqueue()
    await tasks.skips.aenqueue()
    async with bench.working():
        await bench.until(lambda: len(bench.sql("SELECT 1 FROM watchbill.finished_jobs")) == 2)
    first, second = spans(f"process {tasks.fails.type}")
    assert [attributes(span)["watchbill.job.attempt"] for span in (first, second)] == [1, 2]
    assert [attributes(span)["error.type"] for span in (first, second)] == ["ValueError", "Permanent"]
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "broken")
    assert [event.name for event in first.events] == ["exception"]
    [skipped] = spans(f"process {tasks.skips.type}")
    assert (skipped.status.status_code, attributes(skipped)["watchbill.job.outcome"]) == (StatusCode.UNSET, "skip")


async def test_job_enqueued_by_a_handler_joins_its_trace(bench: Workbench) -> None:
    await tasks.enqueues_another.aenqueue()
    await bench.work_off()
    [outer], [inner] = spans(f"process {tasks.enqueues_another.type}"), spans(f"enqueue {tasks.on_loop.type}")
    assert parent(inner) == ids(outer)


async def test_jobs_of_a_bulk_enqueue_have_sibling_spans(bench: Workbench) -> None:
    with tasks.tracer.start_as_current_span("request") as request:
        await bench.app.aenqueue_many([tasks.on_loop.bind(), tasks.on_loop.bind()])
        assert trace.get_current_span() is request
    await bench.work_off()
    sent, processed = spans(f"enqueue {tasks.on_loop.type}"), spans(f"process {tasks.on_loop.type}")
    assert {parent(span) for span in sent} == {
        (request.get_span_context().trace_id, request.get_span_context().span_id)
    }
    assert {parent(span) for span in processed} == {ids(span) for span in sent}
    assert len({ids(span) for span in sent}) == 2


async def test_refused_enqueue_marks_its_span_as_an_error(bench: Workbench) -> None:
    with pytest.raises(Invalid):
        await tasks.on_loop.using(queue="q" * 101).aenqueue()
    [sent] = spans(f"enqueue {tasks.on_loop.type}")
    assert (sent.status.status_code, attributes(sent)["error.type"]) == (StatusCode.ERROR, "Invalid")


async def test_span_of_a_duplicate_names_the_existing_job(bench: Workbench) -> None:
    task = tasks.on_loop.using(idempotency_key="k")
    first, _ = await task.aenqueue(), await task.aenqueue()
    told = [attributes(span) for span in spans(f"enqueue {tasks.on_loop.type}")]
    assert [each["watchbill.job.created"] for each in told] == [True, False]
    assert {each["messaging.message.id"] for each in told} == {str(first.id)}


async def test_trace_metadata_contains_traceparent_and_baggage(bench: Workbench) -> None:
    token = attach(baggage.set_baggage("customer", "7"))
    try:
        await tasks.on_loop.aenqueue()
    finally:
        detach(token)
    [(meta,)] = bench.sql("SELECT meta FROM watchbill.jobs")
    assert set(meta["trace"]) == {"traceparent", "baggage"}


async def test_job_enqueued_from_sql_starts_a_new_trace(bench: Workbench) -> None:
    bench.sql("SELECT watchbill.enqueue(%s)", tasks.on_loop.type)
    await bench.work_off()
    [processed] = spans(f"process {tasks.on_loop.type}")
    assert (processed.parent, list(processed.links)) == (None, [])


def measured(type_: str) -> dict[str, list[Any]]:
    """What was measured for a type since the process started, by the name of the metric."""
    data = tasks.metric_reader.get_metrics_data()
    found = [] if data is None else [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics]
    return {
        metric.name: [p for p in metric.data.data_points if (p.attributes or {}).get("watchbill.job.type") == type_]
        for metric in found
    }


async def test_enqueues_and_runs_are_measured_in_their_spans(bench: Workbench) -> None:
    before = measured(tasks.fails.type)
    sent_before = sum(point.value for point in before.get("messaging.client.sent.messages", []))
    runs_before = sum(point.count for point in before.get("messaging.process.duration", []))
    await tasks.fails.aenqueue()
    await bench.work_off()
    after = measured(tasks.fails.type)
    [sent] = after["messaging.client.sent.messages"]
    assert (sent.value, sent.attributes["messaging.destination.name"]) == (sent_before + 1, "default")
    ended = after["messaging.process.duration"]
    assert {point.attributes["error.type"] for point in ended} == {"ValueError", "Permanent"}
    assert sum(point.count for point in ended) == runs_before + 2
    assert [point.value for point in after["watchbill.active_runs"]] == [0]
    exemplars = {each.trace_id for point in ended for each in point.exemplars}
    assert exemplars == {ids(spans(f"enqueue {tasks.fails.type}")[0])[0]}, "an exemplar leads to the trace"
    assert after["messaging.client.operation.duration"][0].count == sent.value

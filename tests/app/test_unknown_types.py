"""`app.enqueue("typo")` warns, once per type, if neither the App nor a live node knows the type; so does a pause."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
from typing import Any

import psycopg
import pytest

from watchbill import App
from watchbill.client.operations import Operation


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_enqueue_of_an_unknown_type_warns_once_and_suggests_the_right_one(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    job = app.enqueue("reprot")
    app.enqueue("reprot")
    (said,) = warnings(caplog)
    assert str(job.id) in said
    assert said.startswith("Enqueued a job of type reprot")
    assert said.endswith("Did you mean report?")
    assert len(app.jobs.list(type="reprot")) == 2


def test_a_program_without_logging_gets_the_warning_on_stderr_with_its_own_line(schema_database: str) -> None:
    program = textwrap.dedent(
        f"""
        from watchbill import App
        app = App({schema_database!r})
        app.task(type="a.ints")(lambda: None)
        app.enqueue("a.intz")
        """
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.startswith("<string>:5: Enqueued a job of type a.intz")
    assert "Did you mean a.ints?" in done.stderr


@pytest.mark.asyncio
async def test_aenqueue_warns_as_well(schema_database: str, caplog: pytest.LogCaptureFixture) -> None:
    app = App(schema_database)
    app.task(type="report")(lambda: None)
    try:
        await app.aenqueue("reprot")
        await app.aenqueue("reprot")
    finally:
        await app.aclose()
    assert len(warnings(caplog)) == 1


def test_a_type_that_a_live_node_handles_needs_no_task_here(
    app: App, schema_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    with psycopg.connect(schema_database) as connection:
        connection.execute("SELECT watchbill.register('far', types => '{\"billing.charge\": 1}')")
    app.enqueue("billing.charge")
    assert warnings(caplog) == []


def test_an_app_without_tasks_knows_no_type_and_does_not_warn(
    schema_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    app = App(schema_database)
    app.enqueue("reprot")
    app.close()
    assert warnings(caplog) == []


def test_a_known_type_costs_one_statement_and_an_unknown_one_a_second_statement_once(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[object] = []
    run = app.client.run

    def count(operation: Operation[Any]) -> Any:
        runs.append(operation)
        return run(operation)

    monkeypatch.setattr(app.client, "run", count)
    app.enqueue("report")
    assert len(runs) == 1
    for _ in range(3):
        app.enqueue("reprot")
    assert len(runs) == 1 + 3 + 1


def test_a_job_in_the_callers_transaction_is_not_checked(
    app: App, schema_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    with psycopg.connect(schema_database) as connection:
        app.enqueue("reprot", connection=connection)
    assert warnings(caplog) == []
    app.enqueue("reprot")
    assert len(warnings(caplog)) == 1


def test_pause_of_a_queue_or_type_that_nothing_uses_warns_and_suggests_the_right_one(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    app.enqueue("report", queue="mail")
    assert app.queues.pause("mial")
    assert app.queues.pause(type="reprot")
    assert warnings(caplog) == [
        "Paused queue mial, which no node, job, schedule or task uses. Did you mean mail?",
        "Paused type reprot, which no node, job, schedule or task uses. Did you mean report?",
    ]


def test_pause_of_what_is_in_use_does_not_warn(app: App, caplog: pytest.LogCaptureFixture) -> None:
    app.enqueue("report", queue="mail")
    assert app.queues.pause("mail")
    assert app.queues.pause("default", type="report")
    assert app.queues.resume("mail")
    assert warnings(caplog) == []

"""Logs: every record says which job it belongs to, and each dead job is one error."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.docs.programs import environment
from tests.worker.conftest import Workbench
from watchbill import App, Retry
from watchbill.telemetry.logs import Json, Text, WithJob

TASKS = "tests.worker.logging_tasks"
KINDS = {"on_loop": "loop", "in_thread": "thread", "in_process": "process"}


def work_off(url: str, *options: str, form: str = "json") -> str:
    """`watchbill worker --once` until nothing is left, also what waits for its second attempt; what it logged."""
    variables = {"WATCHBILL_DATABASE_URL": url, "WATCHBILL_LOG_FORMAT": form, "WATCHBILL_POLL_INTERVAL": "10ms"}
    command = [sys.executable, "-m", "watchbill.cli", "worker", f"{TASKS}:app", "--once", *options]
    done = subprocess.run(command, env=environment(variables), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def enqueue(url: str, *names: str) -> dict[str, str]:
    app = App(url)
    try:
        return {name: str(app.enqueue(f"{TASKS}.{name}", retry=Retry(max_attempts=1)).id) for name in names}
    finally:
        app.close()


def records(said: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.splitlines()]


def test_log_records_of_every_handler_kind_name_their_job(schema_database: str) -> None:
    jobs = enqueue(schema_database, *KINDS)
    told = {each["job_id"]: each for each in records(work_off(schema_database)) if each["logger"] == "shop"}
    for name, where in KINDS.items():
        record = told[jobs[name]]
        assert (record["message"].split()[-1], record["attempt"], record["level"]) == (where, 1, "info")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", record["time"])
    assert told[jobs["on_loop"]]["order"] == 7


def test_each_dead_job_logs_one_error_with_its_traceback(schema_database: str) -> None:
    jobs = enqueue(schema_database, *(f"fails_{kind}" for kind in KINDS))
    errors = [each for each in records(work_off(schema_database)) if each["level"] == "error"]
    assert sorted(each["job_id"] for each in errors) == sorted(jobs.values())
    for each in errors:
        assert each["logger"] == "watchbill.jobs"
        assert (each["type"].partition(".fails")[0], each["queue"], each["attempt"]) == (TASKS, "default", 1)
        where = each.get("exception") or each["message"]
        assert 'raise ValueError("no such order' in where
        assert "src/watchbill/worker" not in where, "our own frames tell nothing of the handler"


def test_text_log_lines_end_with_the_job_before_the_traceback(schema_database: str) -> None:
    job = enqueue(schema_database, "fails_on_loop")["fails_on_loop"]
    said = work_off(schema_database, form="text")
    line = next(line for line in said.splitlines() if "ERROR" in line)
    assert re.match(r"\d\d:\d\d:\d\d ERROR   watchbill\.jobs: .*fails_on_loop is dead: ValueError: no such order", line)
    assert f"and more [job {job} attempt 1]\n  Traceback" in said


async def test_failure_with_a_further_attempt_logs_a_warning(
    bench: Workbench, caplog: pytest.LogCaptureFixture
) -> None:
    @bench.app.task(retry=Retry(max_attempts=2, base=0))
    async def fragile() -> None:
        raise ValueError("glass")

    @bench.app.task(timeout=0.01, retry=Retry(max_attempts=1))
    async def slow() -> None:
        import asyncio

        await asyncio.sleep(60)

    job, late = await fragile.aenqueue(), await slow.aenqueue()
    async with bench.working():
        await bench.until(lambda: len(bench.sql("SELECT 1 FROM watchbill.finished_jobs")) == 2)
    told = [r for r in caplog.records if r.name == "watchbill.jobs" and r.__dict__["job_id"] == str(job.id)]
    assert [(r.levelname, r.__dict__["attempt"], r.exc_info is None) for r in told] == [
        ("WARNING", 1, True),
        ("ERROR", 2, False),
    ]
    assert "fragile has failed, attempt 1 of 2: ValueError: glass" in told[0].getMessage()
    [timed_out] = [r for r in caplog.records if "has timed out" in r.getMessage()]
    assert timed_out.__dict__["job_id"] == str(late.id)
    assert any(
        "slow is dead: " in r.getMessage() and "timed out after 0.01 s" in r.getMessage() for r in caplog.records
    )


async def test_a_payload_that_does_not_fit_is_logged_like_any_other_end(
    bench: Workbench, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []
    bench.app.on("job_died")(lambda job, outcome, error: seen.append(error["message"]))

    @bench.app.task
    async def count(n: int) -> None: ...

    await count.aenqueue(1)
    bench.sql("""UPDATE watchbill.jobs SET payload = '{"n": "many"}'""")
    await bench.work_off()
    [record] = [r for r in caplog.records if r.levelname == "ERROR"]
    assert "the payload does not match the parameters" in record.getMessage()
    assert record.exc_info is None, "the message says all"
    assert len(seen) == 1


def test_log_record_keeps_its_own_job_id() -> None:
    record = logging.makeLogRecord({"msg": "about another", "job_id": "x", "attempt": 3})
    WithJob().filter(record)
    assert Text().format(record).endswith("about another [job x attempt 3]")
    assert json.loads(Json().format(record))["job_id"] == "x"


def test_a_record_without_an_attempt_names_its_job_once_and_no_attempt() -> None:
    record = logging.makeLogRecord({"msg": "it was lost", "job_id": "abc"})
    assert Text().format(record).endswith("it was lost [job abc]")
    record = logging.makeLogRecord({"msg": "job abc was lost", "job_id": "abc"})
    assert Text().format(record).endswith("job abc was lost")


def test_log_record_outside_a_job_has_no_job_fields() -> None:
    record = logging.makeLogRecord({"msg": "started", "name": "shop", "levelname": "INFO"})
    WithJob().filter(record)
    assert Text().format(record).endswith("INFO    shop: started")
    assert set(json.loads(Json().format(record))) == {"time", "level", "logger", "message"}


def test_import_does_not_configure_logging() -> None:
    program = """
import logging, watchbill
watchbill.App
logging.getLogger("watchbill.worker").error("nobody listens")
print(logging.getLogger().handlers)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")

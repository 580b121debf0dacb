"""`task.using(notify=Webhook(...))`: a webhook tells how a job has ended, in one transaction with the job."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest

from tests.connectors.servers import LocalServer
from tests.connectors.test_http_request import crm
from tests.connectors.test_webhook_delivery import SIGNED
from tests.worker.conftest import Workbench
from watchbill import Permanent, Unique
from watchbill.connectors import Webhook

DELIVERIES = "SELECT count(*) FROM watchbill.job WHERE type = 'connector.webhook.deliver'"


@asynccontextmanager
async def shop(bench: Workbench, *endings: str, **fields: Any) -> AsyncIterator[tuple[LocalServer, Any]]:
    """A receiver, and a task whose runs end as `endings` say: `dead`, or else with that result."""
    left = list(endings)

    async with crm(bench, **SIGNED, **fields) as server:

        @bench.app.task(type="report")
        async def report(month: str) -> str:
            if (ending := left.pop(0)) == "dead":
                raise Permanent("no such month")
            return ending

        await bench.work_off()
        yield server, report


def read(server: LocalServer) -> list[dict[str, Any]]:
    return [json.loads(each.body) for each in server.requests]


async def test_a_webhook_tells_of_the_end_of_a_job(bench: Workbench) -> None:
    async with shop(bench, "done", "dead") as (server, report):
        notified = report.using(notify=Webhook("crm", result=True))
        jobs = [await notified.aenqueue(month="2031-03"), await notified.aenqueue(month="2031-13")]
        await bench.work_off()
        await bench.work_off()
    good, bad = sorted(read(server), key=lambda each: str(each["type"]), reverse=True)
    assert (good["type"], good["data"]["result"], good["data"]["id"]) == ("job.succeeded", "done", str(jobs[0].id))
    assert (bad["type"], bad["data"]["state"], bad["data"]["attempt"]) == ("job.dead", "dead", 1)
    assert bad["data"]["error"] == {"kind": "permanent", "type": "Permanent", "message": "no such month"}
    assert bad["data"]["result"] is None


async def test_other_endings_are_skipped(bench: Workbench) -> None:
    async with shop(bench, "done") as (server, report):
        await report.using(notify=Webhook("crm", on=("dead",))).aenqueue(month="1")
        canceled = await report.using(notify=Webhook("crm", on=("canceled",)), delay=3_600).aenqueue(month="2")
        bench.sql("SELECT watchbill.cancel(%s)", canceled.id)
        await bench.work_off()
        await bench.work_off()
    assert [each["type"] for each in read(server)] == ["job.canceled"]
    assert bench.sql(f"{DELIVERIES} AND state = 'succeeded'") == [(2,)]


async def test_both_jobs_are_rolled_back_together(bench: Workbench) -> None:
    async with shop(bench) as (_, report), await psycopg.AsyncConnection.connect(bench.url) as connection:
        await report.using(notify=Webhook("crm"), connection=connection).aenqueue(month="1")
        await connection.rollback()
        assert bench.sql("SELECT count(*) FROM watchbill.jobs") == [(0,)]
        await report.using(notify=Webhook("crm"), connection=connection).aenqueue(month="1")
        await connection.commit()
    assert bench.sql("SELECT type, wait FROM watchbill.jobs ORDER BY type") == [
        ("connector.webhook.deliver", "blocked"), ("report", None),
    ]  # fmt: skip


async def test_each_job_of_a_bulk_and_of_sql_has_a_webhook_of_its_own(bench: Workbench) -> None:
    async with shop(bench) as (_, report):
        notified = report.using(notify=Webhook("crm"))
        await bench.app.aenqueue_many([notified.bind(month=str(number)) for number in range(30)])
        await bench.app.aenqueue_many([notified.bind(month=str(number)) for number in range(600)])
        meta = json.dumps({"notify": {"url": "https://example.com/hook", "on": ["dead"]}})
        bench.sql("SELECT watchbill.enqueue('report', meta => %s::jsonb)", meta)
        jobs = [{"type": "report"}, {"type": "report", "meta": json.loads(meta)}]
        bench.sql("SELECT watchbill.enqueue_many(%s::jsonb)", json.dumps(jobs))
    assert bench.sql(DELIVERIES) == [(632,)]
    assert bench.sql("SELECT count(DISTINCT parent), count(DISTINCT child) FROM watchbill.dependencies") == [(632, 632)]


async def test_a_job_that_exists_already_gets_no_second_webhook(bench: Workbench) -> None:
    async with shop(bench) as (_, report):
        for options in ({"idempotency_key": "k"}, {"unique": Unique(on_duplicate="keep")}):
            for _ in range(2):
                await report.using(notify=Webhook("crm"), **options).aenqueue(month="1")
    assert bench.sql(DELIVERIES) == [(2,)]


async def test_a_job_that_is_retried_by_hand_notifies_again(bench: Workbench) -> None:
    """dead, retry, dead, retry, succeeded: three webhooks, each with an id of its own."""
    async with shop(bench, "dead", "dead", "done") as (server, report):
        job = await report.using(notify=Webhook("crm")).aenqueue(month="1")
        for _ in range(2):
            await bench.work_off()
            await bench.work_off()
            bench.sql("SELECT watchbill.reschedule(%s)", job.id)
        await bench.work_off()
        await bench.work_off()
    assert [each["type"] for each in read(server)] == ["job.dead", "job.dead", "job.succeeded"]
    assert len({each.headers["webhook-id"] for each in server.requests}) == 3


async def test_a_retry_adds_no_webhook_while_the_last_one_has_not_run(bench: Workbench) -> None:
    async with shop(bench, "dead", "done") as (server, report):
        bench.sql("SELECT watchbill.pause(queue => 'webhooks')")
        job = await report.using(notify=Webhook("crm")).aenqueue(month="1")
        await bench.work_off()
        bench.sql("SELECT watchbill.reschedule(%s)", job.id)
        await bench.work_off()
        bench.sql("SELECT watchbill.resume(queue => 'webhooks')")
        await bench.work_off()
    assert [each["type"] for each in read(server)] == ["job.succeeded"]
    assert bench.sql(DELIVERIES) == [(1,)]


async def test_bulk_retries_notify_again_too(bench: Workbench) -> None:
    async with shop(bench, "dead", "done") as (server, report):
        await report.using(notify=Webhook("crm")).aenqueue(month="1")
        await bench.work_off()
        await bench.work_off()
        bench.sql("SELECT watchbill.reschedule_many('{dead}', type => 'report')")
        await bench.work_off()
        await bench.work_off()
    assert [each["type"] for each in read(server)] == ["job.dead", "job.succeeded"]


@pytest.mark.parametrize(
    "notify",
    [
        {}, [], "crm", {"endpoint": "crm"}, {"endpoint": "crm", "on": []}, {"endpoint": "crm", "on": "dead"},
        {"endpoint": "crm", "on": ["lost"]}, {"on": ["dead"]}, {"endpoint": "a", "url": "b", "on": ["dead"]},
        {"endpoint": "crm", "on": ["dead"], "result": 1}, {"endpoint": "crm", "on": ["dead"], "secret": "env:A"},
    ],
)  # fmt: skip
async def test_invalid_notifications_are_refused(bench: Workbench, notify: Any) -> None:
    with pytest.raises(psycopg.Error, match="notify must have") as error:
        bench.sql("SELECT watchbill.enqueue('report', meta => %s::jsonb)", json.dumps({"notify": notify}))
    assert error.value.sqlstate == "WB003"


@pytest.mark.parametrize(
    "options", [{}, {"endpoint": "a", "url": "b"}, {"endpoint": "a", "on": "dead"}, {"endpoint": "a", "on": ()}]
)
def test_a_webhook_is_checked_where_it_is_made(options: Any) -> None:
    with pytest.raises(ValueError, match="is invalid"):
        Webhook(**options)


async def test_a_delivery_waits_while_its_job_runs_again(bench: Workbench) -> None:
    async with shop(bench, "dead", "done") as (server, report):
        job = await report.using(notify=Webhook("crm")).aenqueue(month="1")
        await bench.work_off(queues=("default",))
        bench.sql("SELECT watchbill.reschedule(%s, now() + interval '1 hour')", job.id)
        await bench.work_off()
        ((state,),) = bench.sql("SELECT state FROM watchbill.job WHERE type = 'connector.webhook.deliver'")
        assert (state, server.requests) == ("queued", [])

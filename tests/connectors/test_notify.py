"""`task.using(notify=Webhook(...))`: a webhook tells how a job has ended, in one transaction with the job."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from tests.connectors.servers import LocalServer, answer
from tests.connectors.test_http_request import answering, crm
from tests.connectors.test_webhook_delivery import SIGNED
from tests.worker.conftest import Workbench
from watchbill import Permanent, Unique
from watchbill.client import endpoint_operations
from watchbill.connectors import Endpoint, Signature, Webhook

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


async def test_each_try_sends_the_same_bytes_though_the_job_was_retried_and_its_row_is_gone(bench: Workbench) -> None:
    """The first webhook says dead in both of its tries, and the retry by hand sends one of its own."""
    respond = answering(answer(500), answer(200))
    async with shop(bench, "dead", "done", respond=respond) as (server, report):
        job = await report.using(notify=Webhook("crm")).aenqueue(month="1")
        await bench.work_off()
        await bench.work_off()
        bench.sql("SELECT watchbill.reschedule(%s)", job.id)
        await bench.work_off()
        await bench.work_off()
        assert [each["type"] for each in read(server)] == ["job.dead", "job.succeeded"]
        bench.sql("DELETE FROM watchbill.finished_jobs WHERE id = %s", job.id)
        bench.sql("UPDATE watchbill.jobs SET run_at = now(), wait = NULL WHERE type = 'connector.webhook.deliver'")
        await bench.work_off()
    first, other, again = server.requests
    assert (first.body, first.headers["webhook-id"]) == (again.body, again.headers["webhook-id"])
    assert other.headers["webhook-id"] != first.headers["webhook-id"]


async def test_a_job_that_runs_again_while_its_delivery_reads_it_is_told_of_once(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The delivery has read that the job is dead. Before it keeps that, somebody retries the job."""
    async with shop(bench, "dead", "done") as (server, report):
        job = await report.using(notify=Webhook("crm")).aenqueue(month="1")
        await bench.work_off(queues=("default",))
        keep = endpoint_operations.keep_notification

        def retry_first(*args: Any) -> Any:
            bench.sql("SELECT watchbill.reschedule(%s)", job.id)
            monkeypatch.setattr(endpoint_operations, "keep_notification", keep)
            return keep(*args)

        monkeypatch.setattr(endpoint_operations, "keep_notification", retry_first)
        await bench.work_off(queues=("webhooks",))
        assert server.requests == []
        await bench.work_off()
        bench.sql("UPDATE watchbill.jobs SET run_at = now(), wait = NULL")
        await bench.work_off()
    assert [each["type"] for each in read(server)] == ["job.succeeded"]
    assert bench.sql(DELIVERIES) == [(1,)]


async def test_a_delivery_tells_nothing_of_a_job_of_another_tenant(bench: Workbench) -> None:
    """A producer can write any payload, also the id of a job that it has seen somewhere."""
    async with shop(bench, "done") as (server, report):
        await bench.app.aenqueue_many([report.bind(month="1")])
        await bench.work_off()
        ((job_id,),) = bench.sql("SELECT id FROM watchbill.finished_jobs WHERE type = 'report'")
        bench.app.endpoint(
            Endpoint("crm", f"http://127.0.0.1:{server.port}/", Signature("env:WATCHBILL_SECRET_OLD"), tenant="thief")
        )
        notify = {"job": str(job_id), "on": ["succeeded"], "result": True}
        stolen = await bench.app.aenqueue(
            "connector.webhook.deliver", {"endpoint": "crm", "notify": notify}, tenant="thief"
        )
        await bench.work_off()
    assert server.requests == []
    assert bench.sql("SELECT result FROM watchbill.job_by_id(%s)", stolen.id) == [(None,)]


async def test_what_the_dashboard_hides_is_hidden_in_webhooks(bench: Workbench) -> None:
    settings = replace(bench.app.settings, redact=("report:result",), redact_text=("no such [a-z]+",))
    bench.app.use(settings)
    async with shop(bench, "done", "dead") as (server, report):
        for _ in range(2):
            await report.using(notify=Webhook("crm", result=True)).aenqueue(month="1")
            await bench.work_off()
            await bench.work_off()
    good, bad = read(server)
    assert (good["data"]["result"], bad["data"]["error"]["message"]) == ("[hidden]", "[hidden]")


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

"""`connector.webhook.deliver`: signed, the same id and bytes at each try, and no receiver delays the others."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from standardwebhooks.webhooks import Webhook

from tests.connectors.conftest import SIGNING
from tests.connectors.servers import LocalServer, Received, answer, serve
from tests.connectors.test_http_request import allow, answering, crm, read_job
from tests.worker.conftest import Workbench
from watchbill.connectors import Endpoint, Signature, add_connectors, verify_webhook
from watchbill.worker.config import Capacity

TYPE = "connector.webhook.deliver"
OLD, NEW = "env:WATCHBILL_SECRET_OLD", "env:WATCHBILL_SECRET_NEW"
SIGNED: dict[str, Any] = {"auth": Signature(OLD)}


async def send(bench: Workbench, **payload: Any) -> UUID:
    job = await bench.app.aenqueue(TYPE, {"endpoint": "crm", "type": "order.paid", "data": {"order": 7}} | payload)
    return job.id


async def deliver(bench: Workbench, **payload: Any) -> tuple[UUID, str, dict[str, Any]]:
    job_id = await send(bench, **payload)
    await bench.work_off()
    return job_id, *read_job(bench, job_id)


async def try_again(bench: Workbench, job_id: UUID) -> None:
    bench.sql("SELECT watchbill.reschedule(%s, now())", job_id)
    await bench.work_off()


async def test_a_webhook_is_signed_as_standard_webhooks_says(bench: Workbench) -> None:
    async with crm(bench, **SIGNED) as server:
        job_id, state, result = await deliver(bench)
    (received,) = server.requests
    assert (state, result["status"], received.method) == ("succeeded", 200, "POST")
    assert received.headers["webhook-id"] == str(job_id)
    content = Webhook(SIGNING["OLD"]).verify(received.body, received.headers)
    assert content == verify_webhook(received.headers, received.body, SIGNING["OLD"])
    assert (content["type"], content["data"]) == ("order.paid", {"order": 7})
    ((created,),) = bench.sql("SELECT created_at FROM watchbill.job WHERE id = %s", job_id)
    assert content["timestamp"][:16] == created.isoformat()[:16]


async def test_each_try_has_the_same_id_and_the_same_bytes(bench: Workbench) -> None:
    async with crm(bench, answering(answer(500), answer(302, b"", Location="/"), answer(200)), **SIGNED) as server:
        job_id, state, _ = await deliver(bench, data={"b": 1, "a": [1.50, "ä"], "c": None})
        assert state == "failed"
        for wanted in ("failed", "succeeded"):
            await try_again(bench, job_id)
            assert read_job(bench, job_id)[0] == wanted
    assert len({(each.body, each.headers["webhook-id"]) for each in server.requests}) == 1
    assert len(server.requests) == 3


async def test_secrets_rotate_without_a_lost_webhook(bench: Workbench) -> None:
    """The receiver knows only the old secret, then only the new one, while the sender signs with both in between."""
    async with crm(bench, **SIGNED) as server:
        await deliver(bench)
        for references in ([OLD, NEW], [NEW]):
            auth = json.dumps({"auth": {"kind": "signature", "secrets": references}})
            bench.sql("SELECT watchbill.set_endpoint('crm', %s::jsonb)", auth)
            await deliver(bench)
    first, both, last = server.requests
    for received, names in ((first, ["OLD"]), (both, ["OLD", "NEW"]), (last, ["NEW"])):
        for name in names:
            Webhook(SIGNING[name]).verify(received.body, received.headers)
        assert len(received.headers["webhook-signature"].split()) == len(names)


async def test_the_delays_between_tries_are_those_of_standard_webhooks(bench: Workbench) -> None:
    """Also if SQL enqueues the job: the whole list, then dead."""
    async with crm(bench, answering(answer(500)), **SIGNED):
        ((job_id,),) = bench.sql(
            "SELECT id FROM watchbill.enqueue(%s, %s::jsonb)", TYPE, json.dumps({"endpoint": "crm", "type": "t"})
        )
        waits = []
        for _ in range(9):
            await bench.work_off()
            ((left,),) = bench.sql("SELECT run_at - now() FROM watchbill.jobs WHERE id = %s", job_id)
            waits.append(left)
            bench.sql("UPDATE watchbill.jobs SET run_at = now(), wait = NULL WHERE id = %s", job_id)
        await bench.work_off()
    assert read_job(bench, job_id)[0] == "dead"
    wanted = [5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400]
    for wait, seconds in zip(waits, wanted, strict=True):
        assert timedelta(seconds=seconds * 0.8 - 5) < wait <= timedelta(seconds=seconds)


async def test_a_receiver_may_ask_for_more_time_and_not_for_less(bench: Workbench) -> None:
    """Ten tries within seconds would lose the webhook."""
    async with crm(bench, answering(*(answer(503, b"", Retry_After=each) for each in ("1", "7200"))), **SIGNED):
        waits = []
        job_id = await send(bench)
        for _ in range(2):
            await bench.work_off()
            ((left,),) = bench.sql("SELECT run_at - now() FROM watchbill.jobs WHERE id = %s", job_id)
            waits.append(left)
            bench.sql("UPDATE watchbill.jobs SET run_at = now(), wait = NULL WHERE id = %s", job_id)
    assert timedelta(seconds=2) < waits[0] <= timedelta(seconds=5)
    assert timedelta(minutes=119) < waits[1] <= timedelta(hours=2)


async def test_a_success_needs_no_readable_body(bench: Workbench) -> None:
    async with crm(bench, answering(answer(200, b"abc", Content_Encoding="br")), **SIGNED):
        assert (await deliver(bench))[1] == "succeeded"


async def test_a_server_that_is_gone_disables_its_endpoint(bench: Workbench, caplog: pytest.LogCaptureFixture) -> None:
    async with crm(bench, answering(answer(410), answer(200)), **SIGNED) as server:
        assert (await deliver(bench))[1] == "dead"
        assert "The endpoint crm of tenant default was disabled" in caplog.text
        _, state, error = await deliver(bench)
        assert (state, len(server.requests)) == ("dead", 1)
        assert "is disabled: the server answered 410 Gone" in error["message"]
        ((audited,),) = bench.sql("SELECT detail FROM watchbill.audit WHERE action = 'disable_endpoint'")
        assert audited == {"reason": "the server answered 410 Gone"}
        bench.sql("""SELECT watchbill.set_endpoint('crm', '{"disabled": null}')""")
        assert (await deliver(bench))[1] == "succeeded"


async def test_five_days_without_a_success_disable_an_endpoint(bench: Workbench) -> None:
    async with crm(bench, answering(answer(500), answer(200), answer(500)), **SIGNED):
        failing = "SELECT failing_since IS NOT NULL FROM watchbill.connector_endpoints"
        await deliver(bench)
        assert bench.sql(failing) == [(True,)]
        await deliver(bench)
        assert bench.sql(failing) == [(False,)]
        await deliver(bench)
        bench.sql("UPDATE watchbill.connector_endpoints SET failing_since = now() - interval '119 hours'")
        await deliver(bench)
        assert bench.sql("SELECT disabled_reason FROM watchbill.endpoint_list()") == [(None,)]
        bench.sql("UPDATE watchbill.connector_endpoints SET failing_since = now() - interval '5 days'")
        await deliver(bench)
        assert bench.sql("SELECT disabled_reason FROM watchbill.endpoint_list()") == [
            ("no delivery has succeeded for five days",)
        ]


async def test_a_free_address_gets_an_unsigned_webhook_with_an_id(bench: Workbench) -> None:
    async with crm(bench, declare=False):
        bench.sql(
            "SELECT id FROM watchbill.enqueue(%s, %s::jsonb)",
            TYPE, json.dumps({"url": "http://Free.Example:8080/hook", "type": "t"}),
        )  # fmt: skip
        ((payload, queue, keys),) = bench.sql("SELECT payload, queue, limit_keys FROM watchbill.jobs")
    assert payload["receiver"] == "free.example"
    assert (queue, keys) == ("webhooks", ["key:connector/receiver:default/free.example"])


async def test_an_endpoint_without_signature_gets_no_webhook(bench: Workbench) -> None:
    async with crm(bench) as server:
        _, state, error = await deliver(bench)
    assert (state, server.requests) == ("dead", [])
    assert "needs kind webhook" in error["message"]


async def test_an_invalid_signing_secret_is_not_repeated(bench: Workbench) -> None:
    async with crm(bench, auth=Signature("env:WATCHBILL_SECRET_PASSWORD")) as server:
        _, state, error = await deliver(bench)
    assert (state, server.requests) == ("failed", [])
    assert "a webhook secret must be whsec_" in error["message"]


@pytest.mark.parametrize("how", ["python", "bulk", "sql", "sql many", "plain many"])
async def test_queue_receiver_and_limit_are_set_for_every_producer(bench: Workbench, how: str) -> None:
    async with crm(bench, **SIGNED):
        await bench.work_off()  # the node writes the endpoint
        payload = {"endpoint": "crm", "type": "t"}
        match how:
            case "python":
                await bench.app.aenqueue(TYPE, payload, queue="other")
            case "bulk":
                task = bench.app.tasks[TYPE]
                await bench.app.aenqueue_many([task.bind(**payload), task.bind(**payload)])
            case "sql":
                bench.sql(
                    "SELECT watchbill.enqueue(%s, %s::jsonb, queue => 'other', limit_keys => '{endpoint/other/crm}')",
                    TYPE, json.dumps(payload),
                )  # fmt: skip
            case "sql many":
                jobs = [{"type": TYPE, "payload": payload}, {"type": "plain"}]
                bench.sql("SELECT watchbill.enqueue_many(%s::jsonb)", json.dumps(jobs))
            case "plain many":
                await bench.app.aenqueue_many([bench.app.tasks[TYPE].bind(**payload) for _ in range(600)])
        found = bench.sql(
            "SELECT DISTINCT payload->>'receiver', queue, limit_keys, lane > 0 FROM watchbill.jobs WHERE type = %s",
            TYPE,
        )
    assert found == [("crm", "webhooks", ["key:endpoint/default/crm"], True)]


async def test_a_receiver_that_hangs_does_not_delay_the_others(bench: Workbench) -> None:
    """Twenty deliveries to it are ready before those of the others. It holds five slots at most, its limit."""
    others_done, most_hanging = asyncio.Event(), 0
    hanging: set[int] = set()

    async def hang(received: Received, writer: asyncio.StreamWriter) -> None:
        nonlocal most_hanging
        hanging.add(id(writer))
        most_hanging = max(most_hanging, len(hanging))
        await others_done.wait()
        hanging.discard(id(writer))
        writer.write(answer())

    async with serve(hang) as slow, serve() as quick:
        allow(bench, slow, quick)
        add_connectors(bench.app, allow_http=True)
        for name, server in {"slow": slow, **dict.fromkeys(("a", "b", "c"), quick)}.items():
            bench.app.endpoint(Endpoint(name, f"http://127.0.0.1:{server.port}/{name}", Signature(OLD)))
        await bench.work_off()
        for name in ("slow", "a", "b", "c"):
            for _ in range(20):
                await send(bench, endpoint=name)
        async with bench.working(capacity=Capacity({"async": 10, "thread": 1, "process": 1}, 10)):
            await bench.until(lambda: len(quick.requests) == 60)
            assert len(slow.requests) == most_hanging <= 5
            others_done.set()
            await bench.until(lambda: len(slow.requests) == 20)


async def test_webhooks_of_an_ordered_endpoint_arrive_in_order(bench: Workbench) -> None:
    """The first fails once, and those after it wait for its second try. Another endpoint does not."""
    async with crm(bench, answering(answer(500), answer(200)), ordered=True, **SIGNED) as server, serve() as other:
        allow(bench, server, other)
        bench.app.endpoint(Endpoint("free", f"http://127.0.0.1:{other.port}/", Signature(OLD)))
        await bench.work_off()
        ids = [await send(bench, data=number) for number in range(4)]
        await send(bench, endpoint="free")
        await bench.work_off()
        assert (len(server.requests), len(other.requests)) == (1, 1)
        await try_again(bench, ids[0])
    assert [json.loads(each.body)["data"] for each in server.requests] == [0, 0, 1, 2, 3]


async def test_two_tenants_have_limits_and_endpoints_of_their_own(bench: Workbench) -> None:
    async with serve() as server:
        allow(bench, server)
        add_connectors(bench.app, allow_http=True)
        for tenant in ("a/b", "a"):
            bench.app.endpoint(
                Endpoint("crm", f"http://127.0.0.1:{server.port}/{tenant}", Signature(OLD), tenant=tenant)
            )
        await bench.work_off()
        await bench.app.aenqueue(TYPE, {"endpoint": "crm", "type": "t"}, tenant="a/b")
        assert bench.sql("SELECT limit_keys FROM watchbill.jobs") == [(["key:endpoint/a%2Fb/crm"],)]
        await bench.work_off()
        assert _list_paths(server) == ["/a/b"]


def _list_paths(server: LocalServer) -> list[str]:
    return [each.path for each in server.requests]

"""`connector.http.request`: a job sends a request, and its outcome follows from the answer."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
from starlette.testclient import TestClient

from tests.connectors.conftest import PASSWORD, TOKEN, check_no_secret
from tests.connectors.servers import LocalServer, Received, Respond, answer, reply, serve
from tests.dashboard.conftest import BASE
from tests.worker.conftest import Workbench
from watchbill import App
from watchbill.connectors import Basic, Bearer, Endpoint, SecretHeader, Signature, add_connectors
from watchbill.dashboard import Dashboard, open_to_all

TYPE = "connector.http.request"


@asynccontextmanager
async def crm(
    bench: Workbench, respond: Respond = reply, *, declare: bool = True, **fields: Any
) -> AsyncIterator[LocalServer]:
    """A server, an endpoint `crm` for it, and a worker that may reach it."""
    async with serve(respond) as server:
        allow(bench, server)
        add_connectors(bench.app, allow_http=True)
        if declare:
            bench.app.endpoint(Endpoint("crm", f"http://127.0.0.1:{server.port}/v2", **fields))
        yield server


def allow(bench: Workbench, *servers: LocalServer) -> None:
    allowed = tuple(f"127.0.0.1:{server.port}" for server in servers)
    bench.app.use(replace(bench.app.settings, connector_allow=allowed))


async def run_job(bench: Workbench, **payload: Any) -> tuple[UUID, str, dict[str, Any]]:
    """Enqueues a request, works until nothing is ready, and returns the id, the state, and the result or the error of
    the last attempt."""
    job = await bench.app.aenqueue(TYPE, payload)
    await bench.work_off()
    return job.id, *read_job(bench, job.id)


def read_job(bench: Workbench, job_id: UUID) -> tuple[str, dict[str, Any]]:
    found = bench.sql("SELECT state, result, error FROM watchbill.job_by_id(%s)", job_id)
    state, result, error = found[0]
    if error is None and result is None:
        ((error,),) = bench.sql("SELECT error FROM watchbill.job_attempts(%s) ORDER BY run DESC LIMIT 1", job_id)
    return state, error or result


def answering(*answers: bytes) -> Respond:
    """Answers with each in turn, and then the last one again and again."""
    left = list(answers)

    async def respond(received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(left.pop(0) if len(left) > 1 else left[0])

    return respond


async def test_a_request_is_sent_and_its_answer_is_the_result(bench: Workbench) -> None:
    body = json.dumps({"name": "Jürgen"}).encode()
    respond = answering(answer(201, body, Content_Type="application/json", ETag="x", Set_Cookie="a=b"))
    async with crm(bench, respond, auth=Bearer("env:WATCHBILL_SECRET_TOKEN"), headers={"X-App": "shop"}) as server:
        job_id, state, result = await run_job(
            bench, endpoint="crm", path="/people", method="post", query={"q": ["a b", "c"]}, json={"a": 1}
        )
    (received,) = server.requests
    assert (received.method, received.path) == ("POST", "/v2/people?q=a+b&q=c")
    assert (received.body, received.headers["content-type"]) == (b'{"a":1}', "application/json")
    assert received.headers["authorization"] == f"Bearer {TOKEN}"
    assert received.headers["idempotency-key"] == str(job_id)
    assert received.headers["x-app"] == "shop"
    assert state == "succeeded"
    assert (result["status"], result["json"], result["tries"]) == (201, {"name": "Jürgen"}, 1)
    assert result["headers"] == {"content-type": "application/json", "etag": "x"}
    assert result["bytes"] == len(body)


@pytest.mark.parametrize(
    ("auth", "name", "value"),
    [
        (Basic("user", "env:WATCHBILL_SECRET_PASSWORD"), "authorization", f"user:{PASSWORD}"),
        (SecretHeader("X-Api-Key", "env:WATCHBILL_SECRET_TOKEN"), "x-api-key", TOKEN),
    ],
)
async def test_each_kind_of_authentication_is_sent(bench: Workbench, auth: Any, name: str, value: str) -> None:
    async with crm(bench, auth=auth) as server:
        _, state, _ = await run_job(bench, endpoint="crm")
    sent = server.requests[0].headers[name]
    assert (base64.b64decode(sent.split()[1]).decode() if sent.startswith("Basic ") else sent) == value
    assert state == "succeeded"


async def test_secrets_come_from_files_and_from_resolvers_of_the_app(bench: Workbench, tmp_path: Any) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    async with crm(bench, auth=Bearer(f"file:{tmp_path}/token")) as server:
        bench.app.use(replace(bench.app.settings, connector_secrets=(f"file:{tmp_path}/*",)))

        @bench.app.secret_resolver
        async def vault(key: str, tenant: str) -> str:
            return {("crm", "default"): TOKEN}[key, tenant]

        bench.app.endpoint(Endpoint("other", f"http://127.0.0.1:{server.port}", Bearer("resolver:vault/crm")))
        for endpoint in ("crm", "other"):
            _, state, _ = await run_job(bench, endpoint=endpoint)
            assert state == "succeeded"
    assert [each.headers["authorization"] for each in server.requests] == [f"Bearer {TOKEN}"] * 2


@pytest.mark.parametrize(
    "reference",
    ["env:DATABASE_URL", "env:WATCHBILL_SECRET_MISSING", "file:/etc/passwd", "file:/run/secrets/../../etc/passwd",
     "file:/run/secrets/a/b", "resolver:nothing"],
)  # fmt: skip
async def test_a_worker_resolves_only_what_its_settings_list(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, reference: str
) -> None:
    monkeypatch.setenv("DATABASE_URL", TOKEN)
    async with crm(bench, auth=Bearer(reference)) as server:
        _, state, error = await run_job(bench, endpoint="crm")
    assert (state, server.requests) == ("failed", [])
    assert reference in error["message"]


@pytest.mark.parametrize(("tenant", "state"), [("token", "failed"), ("TOKEN", "succeeded")])
async def test_a_tenant_can_be_kept_to_its_own_secrets(bench: Workbench, tenant: str, state: str) -> None:
    async with crm(bench, auth=Bearer("env:WATCHBILL_SECRET_TOKEN"), tenant=tenant):
        bench.app.use(replace(bench.app.settings, connector_secrets=("env:WATCHBILL_SECRET_{tenant}",)))
        job = await bench.app.aenqueue(TYPE, {"endpoint": "crm"}, tenant=tenant)
        await bench.work_off()
    assert read_job(bench, job.id)[0] == state


async def test_a_header_of_the_payload_does_not_stand_beside_the_secret(bench: Workbench) -> None:
    async with crm(bench, auth=Bearer("env:WATCHBILL_SECRET_TOKEN")) as server:
        await run_job(bench, endpoint="crm", headers={"authorization": "Bearer other"})
    assert server.requests[0].headers["authorization"] == f"Bearer {TOKEN}"


async def test_a_secret_that_the_server_repeats_is_removed(bench: Workbench) -> None:
    """In the answer, in headers, in the error; as it is and in other forms. The check after the test searches the
    database and all logs."""
    forms = [TOKEN, json.dumps(TOKEN), base64.b64encode(f"xx{TOKEN}yy".encode()).decode(), TOKEN.replace("/", "%2F")]

    def repeat(status: int, kind: str) -> bytes:
        body = json.dumps(forms).encode() if kind == "application/json" else " ".join(forms).encode()
        return answer(status, body, Content_Type=kind, ETag=TOKEN)

    respond = answering(
        repeat(200, "text/plain"), repeat(200, "application/json"), repeat(400, "text/plain"), repeat(500, "text/plain")
    )
    async with crm(bench, respond, auth=Bearer("env:WATCHBILL_SECRET_TOKEN")):
        for wanted in ("succeeded", "succeeded", "dead", "failed"):
            _, state, found = await run_job(bench, endpoint="crm")
            assert state == wanted
            assert "[secret]" in json.dumps(found)


async def test_no_page_and_no_command_shows_a_secret(bench: Workbench) -> None:
    """Of jobs whose server repeats it: in a result, in the error of a dead job, and in that of one that waits."""
    respond = answering(*(answer(status, TOKEN.encode(), ETag=TOKEN) for status in (200, 400, 500)))
    async with crm(bench, respond, auth=Bearer("env:WATCHBILL_SECRET_TOKEN")):
        ids = [(await run_job(bench, endpoint="crm"))[0] for _ in range(3)]
        seen = await asyncio.to_thread(_read_pages, bench.url, ids)
        command = [sys.executable, "-m", "watchbill.cli", "endpoints", "show", "crm", "--database-url", bench.url]
        seen += (await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)).stdout
    assert seen.count("[secret]") >= 3
    assert "env:WATCHBILL_SECRET_TOKEN" in seen
    check_no_secret(seen)


def _read_pages(url: str, ids: list[UUID]) -> str:
    jobs = [
        place for each in ids for place in (f"/job/{each}", f"/api/v1/jobs/{each}", f"/api/v1/jobs/{each}/attempts")
    ]
    pages = ["/", "/jobs", "/failures", "/api/v1/jobs", "/api/v1/audit", *jobs]
    with TestClient(Dashboard(App(url, name="board"), auth=open_to_all, hosts=()), base_url=BASE) as client:
        answers = [client.get(page) for page in pages]
    assert {each.status_code for each in answers} == {200}
    return "".join(each.text for each in answers)


@pytest.mark.parametrize("spelling", ["plain", "base64", "percent"])
async def test_a_secret_that_the_cut_of_an_answer_divides_is_removed(bench: Workbench, spelling: str) -> None:
    """A producer who may choose where the answer of a server that repeats the secret is cut must not learn it."""
    form = {"plain": TOKEN, "base64": base64.b64encode(TOKEN.encode()).decode(), "percent": quote(TOKEN, safe="")}
    body = f"Authorization: Bearer {form[spelling]}".encode()
    async with crm(bench, answering(answer(200, body)), auth=Bearer("env:WATCHBILL_SECRET_TOKEN")):
        for missing in (1, 2, 10):
            most = len(body) - missing
            _, state, result = await run_job(bench, endpoint="crm", max_response=most, truncate=True)
            assert (state, result["text"]) == ("succeeded", "Authorization: Bearer ")


async def test_a_secret_is_removed_from_json_that_spells_it_in_another_way(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHBILL_SECRET_ODD", "odd&<secret>")
    body = b'{"go": "odd\\u0026\\u003csecret\\u003e", "any": "\\u006fdd&<secret>"}'
    html = b"<td>odd&amp;&lt;secret&gt;</td>"
    respond = answering(answer(200, body, Content_Type="application/json"), answer(200, html))
    async with crm(bench, respond, auth=Bearer("env:WATCHBILL_SECRET_ODD")):
        assert (await run_job(bench, endpoint="crm"))[2]["json"] == {"go": "[secret]", "any": "[secret]"}
        assert (await run_job(bench, endpoint="crm"))[2]["text"] == "<td>[secret]</td>"


async def test_an_error_of_a_library_has_no_secret(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*args: Any) -> None:
        raise RuntimeError(f"the headers are {args}")

    monkeypatch.setattr("watchbill.connectors.exchange.Sender._exchange", fail)
    async with crm(bench, auth=Bearer("env:WATCHBILL_SECRET_TOKEN")):
        _, state, error = await run_job(bench, endpoint="crm", headers={"X-Seen": TOKEN[:8]})
    assert state == "failed"
    assert "RuntimeError" in error["message"]


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504])
async def test_passing_faults_of_a_server_are_tried_again(bench: Workbench, status: int) -> None:
    async with crm(bench, answering(answer(status, b"why", Retry_After="7200"))) as server:
        job_id, state, error = await run_job(bench, endpoint="crm")
    assert (state, len(server.requests)) == ("failed", 1)
    assert f"answered {status}: why" in error["message"]
    ((left,),) = bench.sql("SELECT run_at - now() FROM watchbill.jobs WHERE id = %s", job_id)
    assert timedelta(minutes=119) < left <= timedelta(hours=2)


async def test_retry_after_may_be_a_date_and_is_at_most_a_day(bench: Workbench) -> None:
    soon, late = (format_datetime(datetime.now(UTC) + timedelta(hours=each), usegmt=True) for each in (2, 99))
    huge = "Mon, 01 Jan 2024 00:00:00 +9999999999999999999"
    respond = answering(*(answer(503, b"", Retry_After=each) for each in (soon, late, "no date", huge)))
    async with crm(bench, respond):
        waits = []
        for _ in range(4):
            job_id, _, error = await run_job(bench, endpoint="crm")
            assert "answered 503" in error["message"]
            ((left,),) = bench.sql("SELECT run_at - now() FROM watchbill.jobs WHERE id = %s", job_id)
            waits.append(left)
    assert timedelta(minutes=118) < waits[0] <= timedelta(hours=2)
    assert timedelta(hours=23) < waits[1] <= timedelta(hours=24)
    assert max(waits[2:]) < timedelta(minutes=1)


async def test_a_server_cannot_ask_to_be_tried_again_at_once(bench: Workbench) -> None:
    async with crm(bench, answering(answer(503, b"", Retry_After="0"))) as server:
        job_id, state, _ = await run_job(bench, endpoint="crm")
    assert (state, len(server.requests)) == ("failed", 1)
    assert bench.sql("SELECT run_at > now() FROM watchbill.jobs WHERE id = %s", job_id) == [(True,)]


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 409, 410, 422, 501])
async def test_other_answers_are_final(bench: Workbench, status: int) -> None:
    async with crm(bench, answering(answer(status, b"because"))):
        _, state, error = await run_job(bench, endpoint="crm", method="POST")
    assert (state, error["kind"]) == ("dead", "permanent")
    assert f"answered {status}: because" in error["message"]


async def test_an_expected_status_is_a_success(bench: Workbench) -> None:
    async with crm(bench, answering(answer(404), answer(200))):
        assert (await run_job(bench, endpoint="crm", expect=[404]))[1] == "succeeded"
        assert (await run_job(bench, endpoint="crm", expect=[404]))[1] == "dead"


async def test_a_conflict_with_an_earlier_try_is_tried_again(bench: Workbench) -> None:
    """The server may still work on the first try: its answer was lost."""
    async with crm(bench, answering(answer(503), answer(409), answer(200))) as server:
        job_id, _, _ = await run_job(bench, endpoint="crm", method="POST")
        for wanted in ("failed", "succeeded"):
            bench.sql("UPDATE watchbill.jobs SET run_at = now(), wait = NULL WHERE id = %s", job_id)
            await bench.work_off()
            assert read_job(bench, job_id)[0] == wanted
    assert {each.headers["idempotency-key"] for each in server.requests} == {str(job_id)}


@pytest.mark.parametrize(
    ("method", "retry_unsafe", "state"),
    [("POST", True, "failed"), ("POST", False, "dead"), ("PATCH", False, "dead"), ("PUT", False, "failed")],
)
async def test_a_lost_answer_to_a_post_is_tried_again_unless_forbidden(
    bench: Workbench, method: str, retry_unsafe: bool, state: str
) -> None:
    async def hang_up(received: Received, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with crm(bench, hang_up):
        assert (await run_job(bench, endpoint="crm", method=method, retry_unsafe=retry_unsafe))[1] == state


async def test_a_server_without_an_answer_is_tried_again(bench: Workbench) -> None:
    async def hang(received: Received, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with crm(bench, hang):
        _, state, error = await run_job(bench, endpoint="crm", timeout=0.2)
    assert state == "failed"
    assert "within 0.2 s" in error["message"]


@pytest.mark.parametrize(
    "path",
    ["..", "../admin", "a/../../b", "/..", "%2e%2e/x", "%2E./x", "a/%2e%2e", "%252e%252e/x", "..;/x", "..%2fx",
     "..%5cx", "..\\x", "//other.test/x", "a?b=c", "a#b", "a\r\nb", "a b", "%c0%ae%c0%ae/x", "..%20/x", "..%00/x",
     "..%09/x", "a%0d%0ab"],
)  # fmt: skip
async def test_a_path_cannot_leave_its_endpoint(bench: Workbench, path: str) -> None:
    async with crm(bench) as server:
        _, state, _ = await run_job(bench, endpoint="crm", path=path)
    assert (state, server.requests) == ("dead", [])


@pytest.mark.parametrize("path", ["https://other.test/", "@other.test", ":80/", "a/b", "/a", "", "a%20b", "...", "a;b"])
async def test_other_paths_stay_below_the_endpoint(bench: Workbench, path: str) -> None:
    async with crm(bench) as server:
        await run_job(bench, endpoint="crm", path=path)
    assert server.requests[0].path.startswith("/v2")


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ({}, "give endpoint"),
        ({"endpoint": "crm", "url": "https://example.com/"}, "give endpoint"),
        ({"endpoint": "missing"}, "is unknown; an operator adds it"),
        ({"url": "https://example.com/", "path": "x"}, "path belongs to an endpoint"),
        ({"url": "http://127.0.0.1:PORT/"}, "is a loopback address"),
        ({"url": "http://169.254.169.254/"}, "metadata service"),
        ({"url": "https://user:password@example.com/"}, "a user or a password"),
        ({"endpoint": "crm", "method": "CONNECT"}, "method 'CONNECT' is invalid"),
        ({"endpoint": "crm", "method": "GET / HTTP/1.1\r\n"}, "is invalid"),
        ({"endpoint": "crm", "headers": {"Host": "x"}}, "the header 'Host' cannot be set"),
        ({"endpoint": "crm", "headers": {"Content-Length": "1"}}, "cannot be set"),
        ({"endpoint": "crm", "headers": {"transfer-encoding": "chunked"}}, "cannot be set"),
        ({"endpoint": "crm", "headers": {"A b": "x"}}, "cannot be set"),
        ({"endpoint": "crm", "headers": {"A": "x\r\nB: y"}}, "line breaks"),
        ({"endpoint": "crm", "headers": {"A": " x"}}, "spaces at its ends"),
        ({"endpoint": "crm", "headers": {"A": "x\x7f"}}, "line breaks"),
        ({"endpoint": "crm", "headers": {"X-\u212aey": "x"}}, "cannot be set"),
        ({"endpoint": "crm", "query": {"a": {"b": 1}}}, "query['a'] must be"),
        ({"endpoint": "crm", "query": {"a": None}}, "query['a'] must be"),
        ({"endpoint": "crm", "json": 1, "body": "x"}, "give one of json"),
        ({"endpoint": "crm", "body_base64": "!"}, "is not base64"),
        ({"endpoint": "crm", "redirects": 6}, "at most 5"),
        ({"endpoint": "crm", "timeout": 0}, "timeout must be"),
        ({"endpoint": "crm", "expect": "200"}, "expect"),
        ({"endpoint": "crm", "secret": "env:X"}, "secret"),
    ],
)
async def test_invalid_payloads_are_dead_at_once(bench: Workbench, payload: dict[str, Any], why: str) -> None:
    async with crm(bench) as server:
        if "url" in payload:
            payload = payload | {"url": payload["url"].replace("PORT", str(server.port))}
        ((job_id,),) = bench.sql("SELECT id FROM watchbill.enqueue(%s, %s::jsonb)", TYPE, json.dumps(payload))
        await bench.work_off()
        state, error = read_job(bench, job_id)
    assert (state, server.requests) == ("dead", [])
    assert why in error["message"]


async def test_free_addresses_can_be_refused(bench: Workbench) -> None:
    add_connectors(bench.app, urls="endpoints")
    _, state, error = await run_job(bench, url="https://example.com/")
    assert state == "dead"
    assert "endpoints only" in error["message"]


@pytest.mark.parametrize("truncate", [True, False])
async def test_a_large_answer_fails_or_is_cut(bench: Workbench, truncate: bool) -> None:
    async with crm(bench, answering(answer(200, b"x" * 5_000))):
        _, state, found = await run_job(bench, endpoint="crm", max_response=1_000, truncate=truncate)
    if truncate:
        assert (state, found["text"], found["truncated"]) == ("succeeded", "x" * 1_000, True)
    else:
        assert (state, found["message"]) == ("dead", "the answer has more than 1,000 bytes (max_response)")


@pytest.mark.parametrize(
    ("body", "kind", "field"),
    [(b"\xff\x00", "application/json", "base64"), (b'"\\u0000"', "application/json", "text"),
     (b"{bad", "application/json", "text"), (b"a\0b", "text/plain", "base64"), (b"[1e400]", "application/json", "text"),
     (b'{"a": 1}', "application/problem+json", "json"), (b"plain", "", "text"), (b"\x01" * 700_000, "", "base64"),
     (b'"' * 700_000, "text/plain", "base64"), (b"[" * 300 + b"]" * 300, "application/json", "text")],
)  # fmt: skip
async def test_any_content_can_be_stored(bench: Workbench, body: bytes, kind: str, field: str) -> None:
    async with crm(bench, answering(answer(200, body, Content_Type=kind))):
        _, state, result = await run_job(bench, endpoint="crm")
    assert state == "succeeded"
    assert field in result


async def test_headers_that_do_not_fit_into_a_result_are_not_sent_for_again(bench: Workbench) -> None:
    async with crm(bench, answering(answer(200, b"x" * 740_000, X_Long="y" * 60_000))) as server:
        bench.app.use(replace(bench.app.settings, max_result=1_000_000))
        assert (await run_job(bench, endpoint="crm", keep_headers=["x-long"]))[1] == "succeeded"
        bench.app.use(replace(bench.app.settings, max_result=50_000))
        _, state, error = await run_job(bench, endpoint="crm", keep_headers=["x-long"], max_response=100, truncate=True)
    assert (state, len(server.requests)) == ("dead", 2)
    assert error["message"] == "the answer does not fit into a result of 50,000 bytes (max_result)"


async def test_a_text_may_be_cut_in_the_middle_of_a_character(bench: Workbench) -> None:
    async with crm(bench, answering(answer(200, "Jürgen".encode()))):
        _, _, result = await run_job(bench, endpoint="crm", max_response=2, truncate=True)
    assert (result["text"], result["truncated"]) == ("J", True)


async def test_a_query_is_written_as_json_writes_its_values(bench: Workbench) -> None:
    async with crm(bench) as server:
        await run_job(bench, endpoint="crm", query={"a": True, "b": [1, 2.5, "x y"], "c": "ä"})
    assert server.requests[0].path == "/v2?a=true&b=1&b=2.5&b=x+y&c=%C3%A4"


async def test_the_command_lets_a_worker_send_a_request_and_explains_the_answer(bench: Workbench) -> None:
    def run(*words: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "watchbill.cli", "endpoints", "test", *words, "--database-url", bench.url]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    async with crm(bench, answering(answer(200), answer(500), answer(204)), auth=Bearer("env:WATCHBILL_SECRET_TOKEN")):
        bench.app.endpoint(Endpoint("hooks", "http://127.0.0.1:1/", Signature("env:WATCHBILL_SECRET_OLD")))
        async with bench.working():
            await bench.until(lambda: bench.sql("SELECT FROM watchbill.connector_endpoints WHERE name = 'hooks'"))
            assert "answered 200 in" in (await asyncio.to_thread(run, "crm", "--path", "x"))[1]
            code, said = await asyncio.to_thread(run, "crm")
            assert (code, "answered 500 in" in said) == (1, True)
            code, said = await asyncio.to_thread(run, "hooks")
            assert (code, "connector_allow" in said) == (1, True)
        assert (await asyncio.to_thread(run, "missing"))[0] == 1
        assert "no worker has sent it" in (await asyncio.to_thread(run, "crm", "--wait", "1ms"))[1]


async def test_redirects_are_followed_only_where_wanted(bench: Workbench) -> None:
    async with crm(bench, answering(answer(302, b"", Location="/there"), answer(200))) as server:
        assert (await run_job(bench, endpoint="crm", redirects=1))[1] == "succeeded"
    assert [each.path for each in server.requests] == ["/v2", "/there"]


async def test_a_proxy_of_the_settings_is_used(bench: Workbench) -> None:
    async with crm(bench) as server:
        bench.app.use(replace(bench.app.settings, connector_proxy=f"http://127.0.0.1:{server.port}"))
        assert (await run_job(bench, url="http://example.com/"))[1] == "succeeded"
        assert server.requests[0].path == "http://example.com:80/"
        assert (await run_job(bench, url="http://127.0.0.1/"))[1] == "dead"

"""docs/howto/http_requests.md, docs/howto/webhooks.md and docs/explanation/outgoing_requests.md."""

from __future__ import annotations

import asyncio
import re
import sys
from types import ModuleType
from typing import Any

import httpx2
import pytest

from tests.connectors.servers import name_server
from tests.docs.programs import DOCS, blocks
from tests.integrations.drivers import set_up_django
from watchbill.connectors.exchange import Request, Sender
from watchbill.connectors.guard import Refused, Rules, read_target
from watchbill.secrets import Secrets
from watchbill.webhooks import make_headers

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = b'{"type": "order.paid"}'


def _run(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {"__name__": "tasks"}
    exec(compile(text, "a page", "exec"), found)
    return found


def test_the_declarations_of_the_pages_are_those_of_an_app(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks, resolver = blocks("howto/http_requests.md", "python")
    module = ModuleType("tasks")
    exec(compile(tasks, "tasks.py", "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, "tasks", module)
    _run(resolver)
    app = module.app
    assert {"connector.http.request", "connector.webhook.deliver"} <= set(app.tasks)
    secrets = Secrets((), app.secret_resolvers)
    assert asyncio.run(secrets.resolve("resolver:vault/crm", "default")) == "read it from your vault"
    assert "module.pay" not in _run(blocks("howto/webhooks.md", "python")[0])["app"].tasks


@pytest.mark.parametrize("framework", ["fastapi", "flask", "django"])
def test_the_receivers_of_the_page_verify_webhooks(framework: str) -> None:
    (text,) = (each for each in blocks("howto/webhooks.md", "python") if each.startswith(f"# {framework}"))
    good = make_headers("msg_1", BODY, [SECRET])
    answers = [_post(framework, _run(text), headers) for headers in (good, good | {"webhook-id": "msg_2"})]
    assert answers == [200, 400]


def _post(framework: str, found: dict[str, Any], headers: dict[str, str]) -> int:
    match framework:
        case "fastapi":

            async def post() -> int:
                transport = httpx2.ASGITransport(found["api"])
                async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
                    return (await client.post("/hooks", content=BODY, headers=headers)).status_code

            return asyncio.run(post())
        case "flask":
            return int(found["flask"].test_client().post("/hooks", data=BODY, headers=headers).status_code)
        case _:
            from django.test import RequestFactory

            set_up_django()
            request = RequestFactory().post("/hooks", BODY, "application/json", headers=headers)
            return int(found["receive"](request).status_code)


def test_the_table_of_the_guard_has_its_sentences() -> None:
    text = (DOCS / "explanation/outgoing_requests.md").read_text()
    rows = re.findall(r"^\| `(\S+)` \| (.+) \|$", text, re.M)
    assert len(rows) >= 7

    async def ask(url: str) -> str:
        with name_server() as names:
            sender = Sender(Rules(), resolve=names.resolve)
            try:
                await sender.send(Request("GET", read_target(url)), tenant="t")
            except Refused as error:
                return error.message
        return "allowed"

    for url, sentence in rows:
        assert asyncio.run(ask(url)) == sentence

"""Secrets: references are resolved once for many jobs, and a resolver cannot hold a job for ever."""

from __future__ import annotations

import asyncio

import pytest

from watchbill.connectors.exchange import Request
from watchbill.connectors.guard import read_target
from watchbill.connectors.outgoing import Place
from watchbill.secrets import NoSecret, Secrets


def test_jobs_that_start_together_read_a_secret_once() -> None:
    asked: list[str] = []

    async def vault(key: str, tenant: str) -> str:
        asked.append(key)
        await asyncio.sleep(0)
        return f"secret of {tenant}"

    async def run() -> None:
        secrets = Secrets((), {"vault": vault})
        found = await asyncio.gather(*(secrets.resolve("resolver:vault/crm", "shop") for _ in range(20)))
        assert (set(found), asked) == ({"secret of shop"}, ["crm"])
        assert await secrets.resolve("resolver:vault/crm", "other") == "secret of other"

    asyncio.run(run())


def test_a_resolver_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watchbill.secrets.RESOLVER_SECONDS", 0.01)

    async def vault(key: str, tenant: str) -> str:
        await asyncio.Event().wait()
        return ""

    with pytest.raises(NoSecret, match="the resolver raised TimeoutError"):
        asyncio.run(Secrets((), {"vault": vault}).resolve("resolver:vault/crm", "shop"))


@pytest.mark.parametrize("value", [" secret-with-space", "secret-with-space ", "secret\rwith-more", "sécret-sécret"])
def test_a_secret_that_no_header_can_have_is_not_repeated(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHBILL_SECRET_A", value)
    with pytest.raises(NoSecret, match="a character that a header cannot have") as error:
        asyncio.run(Secrets(["env:WATCHBILL_SECRET_*"], {}).resolve("env:WATCHBILL_SECRET_A", "shop"))
    assert "with" not in error.value.message.partition("the secret")[0]


def test_what_a_traceback_or_a_log_shows_has_no_secret() -> None:
    target = read_target("https://example.com/")
    secrets = (("Authorization", "Bearer planted"),)
    place = Place(target, None, secrets=secrets, signing=("planted",))
    assert "planted" not in f"{place} {Request('GET', target, secrets=secrets)}"

"""`bench` is a worker in the test's own process whose connectors may reach the servers of the test. After each test it
searches the whole database, all logs, down to debug, and all spans for the secrets that were planted."""

from __future__ import annotations

import asyncio
import base64
import inspect
import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from psycopg import sql

from tests.worker.conftest import Workbench
from watchbill.integrations.opentelemetry import instrument

TOKEN = "planted/token+of=the;crm"
PASSWORD = 'planted"pass\\word'
SIGNING_BYTES = {"OLD": b"planted-old-signing-key!", "NEW": b"planted-new-signing-key!"}
SIGNING = {name: f"whsec_{base64.b64encode(raw).decode()}" for name, raw in SIGNING_BYTES.items()}


def list_planted() -> list[str]:
    """Every form in which a planted secret must be seen nowhere."""
    forms = []
    for secret in (TOKEN, PASSWORD, f"user:{PASSWORD}", *SIGNING.values()):
        forms += [secret, quote(secret, safe=""), base64.b64encode(secret.encode()).decode().rstrip("=")]
    return forms


@pytest.fixture
def bench(
    schema_database: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Workbench]:
    for name, secret in {"TOKEN": TOKEN, "PASSWORD": PASSWORD, **SIGNING}.items():
        monkeypatch.setenv(f"WATCHBILL_SECRET_{name}", secret)
    caplog.set_level(logging.DEBUG)
    workbench = Workbench(schema_database)
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    instrument(workbench.app, tracer_provider=provider)
    yield workbench
    workbench.app.close()
    provider.shutdown()
    records = caplog.get_records("setup") + caplog.get_records("call") + caplog.get_records("teardown")
    seen = _dump(schema_database) + "".join(f"{each.getMessage()} {each.__dict__}" for each in records)
    check_no_secret(seen + "".join(span.to_json() for span in spans.get_finished_spans()))


def check_no_secret(seen: str) -> None:
    for form in list_planted():
        assert form not in seen, f"a planted secret is visible: {seen[max(seen.index(form) - 200, 0) :][:300]}"


def _dump(url: str) -> str:
    """The text of every row of the schema."""
    parts = []
    with psycopg.connect(url, autocommit=True) as connection:
        tables = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'watchbill'::regnamespace AND relkind = 'r'"
        ).fetchall()
        for (table,) in tables:
            query = sql.SQL("SELECT t::text FROM watchbill.{} t").format(sql.Identifier(table))
            parts += [row[0] for row in connection.execute(query)]
    return "\n".join(parts)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs `async def` tests, and closes the app's connections on the loop that opened them."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    workbench: Any = pyfuncitem.funcargs["bench"]

    async def run() -> None:
        try:
            await pyfuncitem.obj(**arguments)
        finally:
            await workbench.app.aclose()

    asyncio.run(run())
    return True

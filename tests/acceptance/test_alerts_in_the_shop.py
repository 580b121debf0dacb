"""A queue is paused, a limit full, a node killed: `why` names each cause, and its alert comes once and ends once."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import psycopg
import pytest

from tests.acceptance.command import Watchbill
from tests.waiting import until

PATIENCE = 90
TASKS = """
import asyncio
from pathlib import Path

from watchbill import App, Limit

app = App(name="shop")


@app.task(type="mail.send", queue="mail")
async def send() -> None: ...


@app.task(type="crm.sync", queue="crm", limits=[Limit(1, name="crm")])
async def sync() -> None:
    while not Path("go").exists():
        await asyncio.sleep(0.05)
"""


class Receiver:
    """Takes webhooks, and counts them by what they say and about what."""

    def __init__(self) -> None:
        self.heard: Counter[tuple[str, str, str]] = Counter()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.heard[body["type"], body["data"]["rule"], body["data"]["subject"]] += 1
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, args=(0.1,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.server.shutdown()
    receiver.server.server_close()


@pytest.fixture
def shop(tmp_path: Path, schema_database: str, receiver: Receiver) -> Watchbill:
    (tmp_path / "tasks.py").write_text(TASKS)
    shop = Watchbill(tmp_path, {"WATCHBILL_DATABASE_URL": schema_database, "WATCHBILL_LEASE": "1.5"})
    for rule in ("limit_saturated", "node_down", "forgotten_pause"):
        assert shop.here("alerts", "set", rule, "--for", "0s").returncode == 0
    assert shop.here("alerts", "set", "forgotten_pause", "--above", "0.1").returncode == 0
    assert shop.here("alerts", "route", "ops", "--webhook", receiver.url).returncode == 0
    return shop


@contextmanager
def worker(shop: Watchbill, name: str) -> Iterator[subprocess.Popen[bytes]]:
    words = ("worker", "tasks:app", "--name", name)
    process = subprocess.Popen(shop.command(*words), cwd=shop.directory, env=shop.environment())
    try:
        until(lambda: shop.here("health", "ready", "--node", name).returncode == 0, PATIENCE)
        yield process
    finally:
        process.kill()
        process.wait()


def until_heard(receiver: Receiver, url: str, what: tuple[str, str, str]) -> None:
    """Lets the nodes observe at once, and what is well count as well for long enough."""
    with psycopg.connect(url, autocommit=True) as connection:

        def observe() -> bool:
            connection.execute(
                "UPDATE watchbill.chore_marks SET due_at = '2000-01-01Z' "
                "WHERE chore IN ('observer', 'samples', 'alerts')"
            )
            connection.execute("UPDATE watchbill.alerts SET well_since = well_since - interval '3 minutes'")
            return receiver.heard[what] > 0

        until(observe, PATIENCE)


def enqueue(shop: Watchbill, *types: str) -> list[str]:
    return [shop.here("jobs", "enqueue", type_).stdout.strip() for type_ in types]


@pytest.mark.long
def test_three_causes_are_explained_and_alerted_once(shop: Watchbill, receiver: Receiver, schema_database: str) -> None:
    with worker(shop, "web-1"), worker(shop, "web-2") as victim:
        shop.here("queues", "pause", "mail", "--reason", "provider down")
        mails = enqueue(shop, "mail.send", "mail.send", "mail.send")
        assert "Queue mail is paused by" in shop.here("jobs", "why", mails[0]).stdout
        counted = shop.here("queues", "why", "mail").stdout
        assert counted.splitlines()[1].split()[:2] == ["3", "paused"]
        until_heard(receiver, schema_database, ("alert.raised", "forgotten_pause", "queue mail"))
        shop.here("queues", "resume", "mail")
        until_heard(receiver, schema_database, ("alert.cleared", "forgotten_pause", "queue mail"))

        held, waiting = enqueue(shop, "crm.sync", "crm.sync")
        until(lambda: '"limited"' in shop.here("jobs", "show", waiting, "--json").stdout, PATIENCE)
        assert f"It waits for the limit crm, which job {held}" in shop.here("jobs", "why", waiting).stdout
        assert "limited" in shop.here("queues", "why", "crm").stdout
        until_heard(receiver, schema_database, ("alert.raised", "limit_saturated", "crm"))
        (shop.directory / "go").touch()
        until_heard(receiver, schema_database, ("alert.cleared", "limit_saturated", "crm"))

        victim.kill()
        until_heard(receiver, schema_database, ("alert.raised", "node_down", "web-2"))
        with worker(shop, "web-2"):
            until_heard(receiver, schema_database, ("alert.cleared", "node_down", "web-2"))
    rules = ("forgotten_pause", "limit_saturated", "node_down")
    times = {what: count for what, count in receiver.heard.items() if what[1] in rules}
    assert len(times) == 6
    assert set(times.values()) == {1}

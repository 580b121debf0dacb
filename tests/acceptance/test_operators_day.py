"""An operator's day: three jobs do not run. The commands say why, and what to type; after that they run."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.acceptance.command import Watchbill
from tests.waiting import until

PATIENCE = 60
TASKS = """
from watchbill import App

app = App()


@app.task(type="mail.send")
def send(to: str) -> str:
    return f"sent to {to}"


@app.task(type="bill.make", queue="billing")
def make(customer: int) -> None: ...
"""


@pytest.fixture
def shop(watchbill: Watchbill, schema_database: str) -> Watchbill:
    (watchbill.directory / "tasks.py").write_text(TASKS)
    watchbill.environ["WATCHBILL_DATABASE_URL"] = schema_database
    return watchbill


@contextmanager
def worker(shop: Watchbill, *words: str) -> Iterator[None]:
    process = subprocess.Popen(shop.command("worker", *words), cwd=shop.directory, env=shop.environment())
    try:
        until(lambda: any(node["pid"] == process.pid for node in read(shop, "nodes", "list")), PATIENCE)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)


def say(shop: Watchbill, *words: str) -> str:
    """What the command prints, which must succeed."""
    answer = shop.here(*words)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def read(shop: Watchbill, *words: str) -> Any:
    return json.loads(say(shop, *words, "--json"))


def wait_for_state(shop: Watchbill, job_id: str, state: str) -> None:
    until(lambda: read(shop, "jobs", "show", job_id)["state"] == state, PATIENCE)


def test_operator_finds_out_why_three_jobs_do_not_run_and_mends_them(shop: Watchbill) -> None:
    with worker(shop):
        say(shop, "queues", "pause", "billing", "--reason", "invoices are wrong")
        bill = say(shop, "jobs", "enqueue", "bill.make", '{"customer": 7}').strip()

        refused = shop.here("jobs", "enqueue", "mial.send", '{"to": "Ada"}')
        assert refused.returncode == 2
        assert "Did you mean mail.send?" in refused.stderr
        misspelt = say(shop, "jobs", "enqueue", "mial.send", '{"to": "Ada"}', "--unchecked").strip()

        refused = shop.here("jobs", "enqueue", "mail.send", '{"to": "Bob"}', "--queue", "letters")
        assert refused.returncode == 2
        assert "No live node serves queue letters" in refused.stderr
        letter = say(shop, "jobs", "enqueue", "mail.send", '{"to": "Bob"}', "--queue", "letters", "--unchecked").strip()
        until(lambda: read(shop, "jobs", "show", misspelt)["wait"] == "unsupported", PATIENCE)

        why = {job: shop.here("jobs", "why", job) for job in (bill, misspelt, letter)}
        assert {told.returncode for told in why.values()} == {1}
        lines = {job: told.stdout.splitlines() for job, told in why.items()}
        assert lines[bill][0].startswith("Queue billing is paused by ")
        assert lines[bill][0].endswith(": invoices are wrong")
        assert lines[bill][1] == "    watchbill queues resume billing"
        assert lines[misspelt][0] == "No live node handles its type mial.send"
        assert lines[letter][0].startswith("No live node serves its queue letters; live nodes serve ")
        assert lines[letter][1] == "    watchbill worker --queues letters"
        queues = say(shop, "queues")
        assert "invoices are wrong" in queues
        doctor = shop.here("doctor")
        assert doctor.returncode == 1
        assert "queue letters is served by no live node (1 job)" in doctor.stdout
        assert "type mial.send is handled by no live node (1 job)" in doctor.stdout
        assert "watchbill worker --queues letters" in doctor.stdout

        say(shop, "queues", "resume", "billing")
        wait_for_state(shop, bill, "succeeded")
        say(shop, "jobs", "cancel", misspelt[:32])
        again = say(shop, "jobs", "enqueue", "mail.send", '{"to": "Ada"}', "--wait")
        assert "sent to Ada" in again
        with worker(shop, "--queues", "letters"):
            wait_for_state(shop, letter, "succeeded")
        assert shop.here("doctor").returncode == 0

"""`watchbill jobs watch`, `nodes show` and `audit list`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest

from tests.acceptance.command import Watchbill

CLAIM: LiteralString = "SELECT id, fence FROM watchbill.node n, LATERAL watchbill.claim(n.epoch, '{mail}', 10) c"


@pytest.fixture
def connection(schema_database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(schema_database, autocommit=True) as connection:
        connection.execute("SELECT watchbill.register('web-1', '1 hour', app => 'shop', queues => '{mail}')")
        yield connection


@pytest.fixture
def watchbill(tmp_path: Path, schema_database: str) -> Watchbill:
    return Watchbill(tmp_path, {"WATCHBILL_DATABASE_URL": schema_database})


def enqueue(connection: psycopg.Connection) -> str:
    row = connection.execute("SELECT id::text FROM watchbill.enqueue('mail.send', queue => 'mail')").fetchone()
    assert row is not None
    return str(row[0])


def start(watchbill: Watchbill, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        watchbill.command(*words), cwd=watchbill.directory, env=watchbill.environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_watch_follows_a_job_to_its_end(watchbill: Watchbill, connection: psycopg.Connection) -> None:
    job = enqueue(connection)
    with start(watchbill, "jobs", "watch", job) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline().split()[2:] == ["queued", "ready"]
        (claimed,) = connection.execute(CLAIM).fetchall()
        assert watching.stdout.readline().split()[2:] == ["running", "on", "web-1,", "attempt", "1", "of", "10"]
        connection.execute("SELECT watchbill.fail(%s, %s, '{\"message\": \"refused\"}', delay => '0')", claimed)
        assert watching.stdout.readline().split()[2:7] == ["failed", "run", "1", "on", "web-1:"]
        assert watching.stdout.readline().split()[2] in ("failed", "queued")
        while not (again := connection.execute(CLAIM).fetchall()):
            connection.execute("SELECT watchbill.promote()")
        connection.execute("SELECT watchbill.complete(%s, %s, '42')", again[0])
        *_, last = watching.stdout.read().splitlines()
        assert (last.split()[2], last.split()[-1]) == ("succeeded", "42")
        assert watching.wait() == 0


def test_watch_of_a_job_that_did_not_succeed_exits_with_1(watchbill: Watchbill, connection: psycopg.Connection) -> None:
    job = enqueue(connection)
    connection.execute("SELECT watchbill.cancel(%s)", (job,))
    found = watchbill.here("jobs", "watch", job, "--json")
    assert (found.returncode, json.loads(found.stdout)["state"]) == (1, "canceled")
    assert watchbill.here("jobs", "watch", job, "--where", "queue:mail").returncode == 2


def test_watch_with_a_filter_prints_ends_and_counts_what_is_too_much(
    watchbill: Watchbill, connection: psycopg.Connection
) -> None:
    other = connection.execute("SELECT id::text FROM watchbill.enqueue('other')").fetchall()[0][0]
    with start(watchbill, "jobs", "watch", "--where", "queue:mail") as watching:
        assert watching.stdout is not None
        seen: list[str] = []
        while not any(line.startswith("and ") for line in seen):
            connection.execute("SELECT watchbill.cancel(id) FROM watchbill.jobs WHERE queue <> 'mail'")
            connection.execute("SELECT watchbill.enqueue('mail.send', queue => 'mail') FROM generate_series(1, 60)")
            connection.execute("SELECT watchbill.cancel(id) FROM watchbill.jobs")
            seen.append(watching.stdout.readline())
        watching.terminate()
    assert seen[0].split()[2] == "canceled"
    assert seen[-1].split()[0::2] == ["and", "more"]
    assert not any(other in line for line in seen)


def test_nodes_show_names_the_jobs_that_it_runs(watchbill: Watchbill, connection: psycopg.Connection) -> None:
    job = enqueue(connection)
    connection.execute(CLAIM)
    shown = watchbill.here("nodes", "show", "web-1")
    assert shown.returncode == 0
    assert job in shown.stdout
    assert ["queues", "mail"] in [line.split() for line in shown.stdout.splitlines()]
    found = json.loads(watchbill.here("nodes", "show", "web-1", "--json").stdout)
    assert (found["name"], [each["id"] for each in found["jobs"]]) == ("web-1", [job])
    missing = watchbill.here("nodes", "show", "web-2")
    assert (missing.returncode, missing.stderr.startswith("No node is named web-2.")) == (1, True)


def test_audit_list_says_who_did_what(watchbill: Watchbill, connection: psycopg.Connection) -> None:
    job = enqueue(connection)
    watchbill.here("queues", "pause", "mail", "--reason", "bank holiday")
    watchbill.here("jobs", "cancel", job)
    found = json.loads(watchbill.here("audit", "list", "--json").stdout)
    assert [(row["action"], row["subject"]) for row in found] == [("cancel", f"job {job}"), ("pause", "queue mail")]
    line = watchbill.here("audit", "list", "--subject", "queue mail", "--since", "1h").stdout.splitlines()[1]
    assert "bank holiday" in line
    assert json.loads(watchbill.here("audit", "list", "--job", job, "--json").stdout)[0]["action"] == "cancel"
    assert watchbill.here("audit", "list", "--job", job, "--subject", "queue mail").returncode == 2
    assert "No operator" in watchbill.here("audit", "list", "--actor", "nobody").stderr

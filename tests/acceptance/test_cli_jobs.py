"""`watchbill jobs`, `dead`, `queues`, `nodes` and `stats`: what they show, what they do, and what they say to nonsense."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from tests.acceptance.command import Watchbill

NOBODY = "01900000-0000-7000-8000-000000000000"


@pytest.fixture
def watchbill(tmp_path: Path, schema_database: str) -> Watchbill:
    return Watchbill(tmp_path, {"WATCHBILL_DATABASE_URL": schema_database, "TZ": "UTC"})


def sql(watchbill: Watchbill, query: str, *params: object) -> list[tuple[object, ...]]:
    with psycopg.connect(watchbill.environ["WATCHBILL_DATABASE_URL"], autocommit=True) as connection:
        cursor = connection.execute(query.encode(), params)
        return cursor.fetchall() if cursor.description else []


def enqueue(watchbill: Watchbill, *words: str) -> str:
    done = watchbill.here("jobs", "enqueue", *words)
    assert done.returncode == 0, done.stderr
    return str(UUID(done.stdout.strip()))


def run(watchbill: Watchbill, *outcomes: str) -> None:
    """A node claims as many jobs, in their order, and ends them so."""
    sql(watchbill, "SELECT watchbill.register('clerk') WHERE NOT EXISTS (SELECT FROM watchbill.node WHERE name = 'clerk')")
    for outcome in outcomes:
        sql(
            watchbill,
            """SELECT watchbill.settle(n.epoch, ARRAY[c.id], ARRAY[c.fence], ARRAY[%s], ARRAY[0.1],
                 errors => ARRAY['{"type": "Oops", "message": "[red] luck", "kind": "permanent"}'::jsonb])
               FROM watchbill.node n, LATERAL watchbill.claim(n.epoch) c WHERE n.name = 'clerk' AND n.state = 'active'""",
            outcome,
        )


def test_a_job_from_its_enqueue_to_its_second_life(watchbill: Watchbill) -> None:
    job = enqueue(watchbill, "send", '{"to": "\N{SNOWMAN}"}', "--priority", "3", "--key", "k")
    again = watchbill.here("jobs", "enqueue", "send", '{"to": "other"}', "--key", "k", "--json")
    assert json.loads(again.stdout) == {"id": job, "created": False, "payload_differs": True}
    assert job in watchbill.here("jobs").stdout
    run(watchbill, "failed")
    shown = watchbill.here("jobs", "show", job).stdout
    assert all(word in shown for word in ("dead", "[red] luck", "clerk"))
    assert json.loads(watchbill.here("jobs", "show", job, "--json").stdout)["attempts"][0]["outcome"] == "failed"
    assert watchbill.here("jobs", "retry", job).stdout == f"{job} queued again; it was dead\n"
    assert watchbill.here("jobs", "cancel", job, "--reason", "enough").stdout == f"{job} canceled\n"
    assert json.loads(watchbill.here("jobs", "list", "--state", "canceled", "--json").stdout)[0]["id"] == job


def test_a_running_job_is_asked_to_stop_or_taken_away(watchbill: Watchbill) -> None:
    job = enqueue(watchbill, "send")
    sql(watchbill, "SELECT watchbill.claim(watchbill.register('clerk'))")
    assert watchbill.here("jobs", "cancel", job).stdout == f"{job} asked to stop\n"
    assert "cancel or release it first" in watchbill.here("jobs", "retry", job).stderr
    assert watchbill.here("jobs", "cancel", job, "--force").stdout == f"{job} canceled\n"
    other = enqueue(watchbill, "send")
    sql(watchbill, "SELECT watchbill.claim(epoch) FROM watchbill.node")
    assert watchbill.here("jobs", "release", other).stdout == f"{other} queued again\n"
    assert watchbill.here("jobs", "release", other).returncode == 1


def test_dead_jobs_are_listed_grouped_retried_and_purged(watchbill: Watchbill) -> None:
    jobs = [enqueue(watchbill, kind) for kind in ("a", "a", "b")]
    run(watchbill, *["failed"] * 3)
    assert all(job in watchbill.here("dead").stdout for job in jobs)
    groups = json.loads(watchbill.here("dead", "groups", "--json").stdout)
    assert [(group["type"], group["count"], group["message"]) for group in groups] == [
        ("a", 2, "[red] luck"),
        ("b", 1, "[red] luck"),
    ]
    assert watchbill.here("dead", "retry", "--type", "a", "--dry-run").stdout == "2 dead jobs match\n"
    assert watchbill.here("dead", "retry", "--type", "a", "--limit", "1", "--yes").stdout.endswith("1 job queued again\n")
    assert watchbill.here("dead", "purge", "--message", "[red] luck", "--yes").stdout.endswith("2 jobs deleted\n")
    assert watchbill.here("dead", "purge", "--yes").stdout == "0 dead jobs match\n"


def test_queues_are_counted_paused_and_resumed(watchbill: Watchbill) -> None:
    enqueue(watchbill, "send", "--queue", "mail", "--delay", "3600")  # not due, so no age changes between two looks
    assert watchbill.here("queues", "pause", "mail", "--reason", "rain").stdout == "queue mail paused\n"
    assert watchbill.here("queues", "pause", "--type", "send").stdout == "type send paused\n"
    listed = watchbill.here("queues").stdout
    assert all(word in listed for word in ("mail", "rain", "paused: type send"))
    assert watchbill.here("stats").stdout == f"{listed}0 schedules\n"
    assert watchbill.here("queues", "resume", "mail").stdout == "queue mail resumed\n"
    assert watchbill.here("queues", "resume", "mail").returncode == 1


def test_nodes_are_listed_and_drained(watchbill: Watchbill) -> None:
    sql(watchbill, "SELECT watchbill.register('clerk')")
    assert watchbill.here("nodes", "drain", "clerk").stdout == "clerk drains\n"
    assert watchbill.here("nodes", "drain", "clerk").returncode == 1
    assert json.loads(watchbill.here("nodes", "list", "--json").stdout)[0]["state"] == "draining"


WRONG: list[tuple[list[str], int, str]] = [
    (["jobs", "enqueue", "t", "{"], 2, "not JSON"),
    (["jobs", "enqueue", "t", '{"a": NaN}'], 2, "there is no NaN"),
    (["jobs", "enqueue", "t", "[1]"], 2, "must be a JSON object"),
    (["jobs", "enqueue", "t", '{"a": ["x", "b\\u0000"]}'], 2, "a[1] cannot be stored"),
    (["jobs", "enqueue", "t", '{"a": "\\ud800"}'], 2, "half of a surrogate pair"),
    (["jobs", "enqueue", "t", '{"a": 18446744073709551616}'], 2, "a cannot be stored"),
    (["jobs", "enqueue", ""], 2, "type must be"),
    (["jobs", "enqueue", "t", "--delay", "nan"], 2, "delay=nan is no duration"),
    (["jobs", "enqueue", "t", "--delay", "1e18"], 2, "is no duration"),
    (["jobs", "enqueue", "t", "--delay", "-1"], 2, "delay must be within"),
    (["jobs", "enqueue", "t", "--priority", "40000"], 2, "priority must be"),
    (["jobs", "show", "x"], 2, "UUID"),
    (["jobs", "show", NOBODY], 1, "There is no job"),
    (["jobs", "cancel", NOBODY], 1, "There is no job"),
    (["jobs", "retry", NOBODY], 1, "There is no job"),
    (["jobs", "retry", NOBODY, "--at", "0001-01-01"], 2, "no time that a clock will ever show"),
    (["jobs", "release", NOBODY], 1, "is not running"),
    (["jobs", "list", "--state", "ready"], 2, "The states are blocked, queued"),
    (["jobs", "list", "--limit", "0"], 2, "limit"),
    (["queues", "pause"], 2, "Which one?"),
    (["queues", "pause", ""], 2, "No job can be of this queue"),
    (["queues", "resume", "x"], 1, "was not paused"),
    (["nodes", "drain", "x"], 1, "no active node"),
]


@pytest.mark.parametrize(("words", "code", "says"), WRONG, ids=lambda value: str(value)[:50])
def test_nonsense_gets_one_clear_message(watchbill: Watchbill, words: list[str], code: int, says: str) -> None:
    done = watchbill.here(*words)
    said = done.stdout + done.stderr
    assert (done.returncode, says in said, "Traceback" in said) == (code, True, False), said

"""`foliot jobs`, `dead`, `queues`, `nodes` and `stats`: what they show, what they do, and what they say to nonsense."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from tests.acceptance.command import Foliot

NOBODY = "01900000-0000-7000-8000-000000000000"


@pytest.fixture
def foliot(tmp_path: Path, schema_database: str) -> Foliot:
    return Foliot(tmp_path, {"FOLIOT_DATABASE_URL": schema_database, "TZ": "UTC"})


def sql(foliot: Foliot, query: str, *params: object) -> list[tuple[object, ...]]:
    with psycopg.connect(foliot.environ["FOLIOT_DATABASE_URL"], autocommit=True) as connection:
        cursor = connection.execute(query.encode(), params)
        return cursor.fetchall() if cursor.description else []


def enqueue(foliot: Foliot, *words: str) -> str:
    done = foliot.here("jobs", "enqueue", *words)
    assert done.returncode == 0, done.stderr
    return str(UUID(done.stdout.strip()))


def run(foliot: Foliot, *outcomes: str) -> None:
    """A node claims as many jobs, in their order, and ends them so."""
    sql(foliot, "SELECT foliot.register('clerk') WHERE NOT EXISTS (SELECT FROM foliot.node WHERE name = 'clerk')")
    for outcome in outcomes:
        sql(
            foliot,
            """SELECT foliot.settle(n.epoch, ARRAY[c.id], ARRAY[c.fence], ARRAY[%s], ARRAY[0.1],
                 errors => ARRAY['{"type": "Oops", "message": "[red] luck", "kind": "permanent"}'::jsonb])
               FROM foliot.node n, LATERAL foliot.claim(n.epoch) c WHERE n.name = 'clerk' AND n.state = 'active'""",
            outcome,
        )


def test_a_job_from_its_enqueue_to_its_second_life(foliot: Foliot) -> None:
    job = enqueue(foliot, "send", '{"to": "\N{SNOWMAN}"}', "--priority", "3", "--key", "k")
    again = foliot.here("jobs", "enqueue", "send", '{"to": "other"}', "--key", "k", "--json")
    assert json.loads(again.stdout) == {"id": job, "created": False, "payload_differs": True}
    assert job in foliot.here("jobs").stdout
    run(foliot, "failed")
    shown = foliot.here("jobs", "show", job).stdout
    assert all(word in shown for word in ("dead", "[red] luck", "clerk"))
    assert json.loads(foliot.here("jobs", "show", job, "--json").stdout)["attempts"][0]["outcome"] == "failed"
    assert foliot.here("jobs", "retry", job).stdout == f"{job} queued again; it was dead\n"
    assert foliot.here("jobs", "cancel", job, "--reason", "enough").stdout == f"{job} canceled\n"
    assert json.loads(foliot.here("jobs", "list", "--state", "canceled", "--json").stdout)[0]["id"] == job


def test_a_running_job_is_asked_to_stop_or_taken_away(foliot: Foliot) -> None:
    job = enqueue(foliot, "send")
    sql(foliot, "SELECT foliot.claim(foliot.register('clerk'))")
    assert foliot.here("jobs", "cancel", job).stdout == f"{job} asked to stop\n"
    assert "cancel or release it first" in foliot.here("jobs", "retry", job).stderr
    assert foliot.here("jobs", "cancel", job, "--force").stdout == f"{job} canceled\n"
    other = enqueue(foliot, "send")
    sql(foliot, "SELECT foliot.claim(epoch) FROM foliot.node")
    assert foliot.here("jobs", "release", other).stdout == f"{other} queued again\n"
    assert foliot.here("jobs", "release", other).returncode == 1


def test_dead_jobs_are_listed_grouped_retried_and_purged(foliot: Foliot) -> None:
    jobs = [enqueue(foliot, kind) for kind in ("a", "a", "b")]
    run(foliot, *["failed"] * 3)
    assert all(job in foliot.here("dead").stdout for job in jobs)
    groups = json.loads(foliot.here("dead", "groups", "--json").stdout)
    assert [(group["type"], group["count"], group["message"]) for group in groups] == [
        ("a", 2, "[red] luck"),
        ("b", 1, "[red] luck"),
    ]
    assert foliot.here("dead", "retry", "--type", "a", "--dry-run").stdout == "2 dead jobs match\n"
    assert foliot.here("dead", "retry", "--type", "a", "--limit", "1", "--yes").stdout.endswith("1 job queued again\n")
    assert foliot.here("dead", "purge", "--message", "[red] luck", "--yes").stdout.endswith("2 jobs deleted\n")
    assert foliot.here("dead", "purge", "--yes").stdout == "0 dead jobs match\n"


def test_queues_are_counted_paused_and_resumed(foliot: Foliot) -> None:
    enqueue(foliot, "send", "--queue", "mail", "--delay", "3600")  # not due, so no age changes between two looks
    assert foliot.here("queues", "pause", "mail", "--reason", "rain").stdout == "queue mail paused\n"
    assert foliot.here("queues", "pause", "--type", "send").stdout == "type send paused\n"
    listed = foliot.here("queues").stdout
    assert all(word in listed for word in ("mail", "rain", "paused: type send"))
    assert foliot.here("stats").stdout == f"{listed}0 schedules\n"
    assert foliot.here("queues", "resume", "mail").stdout == "queue mail resumed\n"
    assert foliot.here("queues", "resume", "mail").returncode == 1


def test_nodes_are_listed_and_drained(foliot: Foliot) -> None:
    sql(foliot, "SELECT foliot.register('clerk')")
    assert foliot.here("nodes", "drain", "clerk").stdout == "clerk drains\n"
    assert foliot.here("nodes", "drain", "clerk").returncode == 1
    assert json.loads(foliot.here("nodes", "list", "--json").stdout)[0]["state"] == "draining"


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
def test_nonsense_gets_one_clear_message(foliot: Foliot, words: list[str], code: int, says: str) -> None:
    done = foliot.here(*words)
    said = done.stdout + done.stderr
    assert (done.returncode, says in said, "Traceback" in said) == (code, True, False), said

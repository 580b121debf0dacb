"""`watchbill jobs`, `dead`, `queues`, `nodes` and `stats`: what they show, do, and say to nonsense."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from unittest.mock import patch
from uuid import UUID

import psycopg
import pytest

from tests.acceptance.command import Watchbill
from watchbill.cli.arguments import find_job
from watchbill.cli.output import GlobalOptions
from watchbill.client import job_operations
from watchbill.store.queries import queries

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
    sql(
        watchbill,
        "SELECT watchbill.register('clerk') WHERE NOT EXISTS (SELECT FROM watchbill.node WHERE name = 'clerk')",
    )
    for outcome in outcomes:
        sql(
            watchbill,
            """SELECT watchbill.settle(n.epoch, ARRAY[c.id], ARRAY[c.fence], ARRAY[%s], ARRAY[0.1],
                 errors => ARRAY['{"type": "Oops", "message": "[red] luck", "kind": "permanent"}'::jsonb])
               FROM watchbill.node n, LATERAL watchbill.claim(n.epoch) c
                WHERE n.name = 'clerk' AND n.state = 'active'""",
            outcome,
        )


def test_jobs_commands_enqueue_show_retry_and_cancel(watchbill: Watchbill) -> None:
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


def test_jobs_cancel_and_release_act_on_a_running_job(watchbill: Watchbill) -> None:
    job = enqueue(watchbill, "send")
    sql(watchbill, "SELECT watchbill.claim(watchbill.register('clerk'))")
    assert watchbill.here("jobs", "cancel", job).stdout == f"{job} asked to stop\n"
    assert "Cancel or release it first." in watchbill.here("jobs", "retry", job).stderr
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
    found = watchbill.here("dead", "retry", "--type", "a", "--dry-run").stdout.splitlines()
    assert found[0].startswith("2 jobs match, enqueued from ")
    assert found[1:] == ["  2  a"]
    done = watchbill.here("dead", "retry", "--type", "a", "--limit", "1", "--yes")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "1 job queued again")
    done = watchbill.here("dead", "purge", "--message", "[red] luck", "--yes")
    assert done.stdout.splitlines()[-1] == "2 jobs deleted"
    assert watchbill.here("dead", "purge", "--yes").stdout == "0 jobs match\n"


def test_queues_are_counted_paused_and_resumed(watchbill: Watchbill) -> None:
    enqueue(watchbill, "send", "--queue", "mail", "--delay", "1h")  # not due, so no age changes between two looks
    assert watchbill.here("queues", "pause", "mail", "--reason", "rain").stdout == "queue mail paused\n"
    assert watchbill.here("queues", "pause", "--type", "send", "--unchecked").stdout == "type send paused\n"
    header, mail, paused = watchbill.here("queues").stdout.splitlines()
    assert header.split()[:4] == ["queue", "ready", "scheduled", "retrying"]
    assert mail.split()[:4] == ["mail", "0", "1", "0"]
    assert re.search(r"postgres since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d \(\d+ s\): rain$", mail)
    assert re.match(r"paused: type send, by postgres since .* \(\d+ s\)$", paused)
    assert watchbill.here("stats").stdout.splitlines()[-1] == "0 schedules"
    assert watchbill.here("queues", "resume", "mail").stdout == "queue mail resumed\n"
    assert watchbill.here("queues", "resume", "mail").returncode == 1


def test_waiting_jobs_are_ready_scheduled_or_retrying(watchbill: Watchbill) -> None:
    sql(watchbill, "SELECT watchbill.enqueue('t', delay => '1 hour')")
    sql(watchbill, "UPDATE watchbill.jobs SET failed = true")
    enqueue(watchbill, "t")
    enqueue(watchbill, "t", "--delay", "3600")
    words = [line.split() for line in watchbill.here("jobs").stdout.splitlines()]
    place = words[0].index("state")
    assert [line[place] for line in words[1:]] == ["scheduled", "ready", "retrying"]
    [_, counted] = [line.split() for line in watchbill.here("queues").stdout.splitlines()]
    assert counted[:4] == ["default", "1", "1", "1"]
    found = json.loads(watchbill.here("queues", "--json").stdout)["counts"]
    assert {(each["state"], each["wait"], each["count"], each["estimated"]) for each in found} == {
        ("queued", None, 1, False),
        ("queued", "delayed", 1, False),
        ("failed", "delayed", 1, False),
    }


def test_list_show_queues_and_filter_use_the_same_word_for_a_paused_queue(watchbill: Watchbill) -> None:
    paused, ready = enqueue(watchbill, "t", "--queue", "mail"), enqueue(watchbill, "t")
    watchbill.here("queues", "pause", "mail")
    assert [line.split()[:4] for line in watchbill.here("jobs").stdout.splitlines()[1:]] == [
        [ready, "ready", "0/10", "t"],
        [paused, "paused", "0/10", "t"],
    ]
    rows = json.loads(watchbill.here("jobs", "--json").stdout)
    assert [(row["id"], row["waits"]) for row in rows] == [(ready, "ready"), (paused, "paused")]
    shown = dict(line.split(maxsplit=1) for line in watchbill.here("jobs", "show", paused).stdout.splitlines())
    assert shown["state"] == "queued: paused"
    assert "wait" not in shown
    for word, job in (("paused", paused), ("ready", ready)):
        assert [row["id"] for row in json.loads(watchbill.here("jobs", "--state", word, "--json").stdout)] == [job]
    header, _, mail = (line.split() for line in watchbill.here("queues").stdout.splitlines())
    assert (mail[0], mail[header.index("ready")], mail[header.index("paused")]) == ("mail", "0", "1")
    refused = watchbill.here("jobs", "--state", "sleeping").stderr
    assert "ready, scheduled, retrying, paused" in refused


def test_list_and_show_use_the_same_word_for_a_retrying_job(watchbill: Watchbill) -> None:
    job = enqueue(watchbill, "t", "--delay", "1h")
    sql(watchbill, "UPDATE watchbill.jobs SET failed = true")
    assert " retrying " in watchbill.here("jobs").stdout
    shown = watchbill.here("jobs", "show", job).stdout
    assert re.search(r"^state +failed: retrying for 20", shown, re.MULTILINE)
    assert not re.search(r"delayed", shown)


def test_why_says_what_keeps_a_job_and_the_deciding_cause_first(watchbill: Watchbill) -> None:
    job = enqueue(watchbill, "t", "--delay", "2h")
    watchbill.here("queues", "pause", "default", "--reason", "rain")
    told = watchbill.here("jobs", "why", job[:20])
    first, retry, second, resume, third, start = told.stdout.splitlines()
    assert first.startswith("It is due at ")
    assert retry == f"    watchbill jobs retry {job}"
    assert re.fullmatch(r"Then: queue default is paused by postgres since .*: rain", second)
    assert resume == "    watchbill queues resume default"
    assert third == "Then: no node is alive"
    assert start == "    watchbill worker"
    assert told.returncode == 1  # a person must act
    data = json.loads(watchbill.here("jobs", "why", job, "--json").stdout)
    assert [cause["cause"] for cause in data["causes"]] == ["delayed", "paused", "no_node"]
    assert (data["id"], data["state"], data["decisive"], data["before"]) == (job, "queued", "delayed", None)


def test_why_exits_with_0_if_a_job_needs_no_help_and_watches_until_it_has_ended(watchbill: Watchbill) -> None:
    job = enqueue(watchbill, "t")
    watchbill.here("jobs", "cancel", job)
    told = watchbill.here("jobs", "why", job, "--watch")
    assert told.returncode == 0
    assert told.stdout.startswith("It is canceled, since ")


def test_why_tells_of_a_job_that_does_not_exist_where_it_has_looked(watchbill: Watchbill) -> None:
    missing = watchbill.here("jobs", "why", NOBODY)
    assert missing.returncode == 1
    assert "There is no job" in missing.stderr
    assert "in schema watchbill of database" in missing.stderr


def test_show_prints_the_error_of_a_canceled_job_as_words(watchbill: Watchbill) -> None:
    first, second = enqueue(watchbill, "t"), enqueue(watchbill, "t")
    watchbill.here("jobs", "cancel", first, "--reason", "not needed")
    watchbill.here("jobs", "cancel", second)
    assert re.search(r"^error +canceled: not needed$", watchbill.here("jobs", "show", first).stdout, re.MULTILINE)
    assert re.search(r"^error +canceled$", watchbill.here("jobs", "show", second).stdout, re.MULTILINE)


def test_estimates_are_marked(watchbill: Watchbill) -> None:
    many = 'SELECT jsonb_agg(\'{"type": "t"}\'::jsonb) FROM generate_series(1, 100001)'
    sql(watchbill, f"SELECT count(*) FROM watchbill.enqueue_many(({many}))")
    assert re.search(r"^default +≈ \d\d+,\d\d\d ", watchbill.here("queues").stdout, re.MULTILINE)


def test_nodes_are_listed_and_drained(watchbill: Watchbill) -> None:
    sql(watchbill, "SELECT watchbill.register('clerk')")
    assert watchbill.here("nodes", "drain", "clerk").stdout == "clerk drains\n"
    assert watchbill.here("nodes", "drain", "clerk").returncode == 1
    assert json.loads(watchbill.here("nodes", "drain", "clerk", "--json").stdout) == {"name": "clerk", "drains": False}
    assert json.loads(watchbill.here("nodes", "list", "--json").stdout)[0]["state"] == "draining"


def test_jobs_are_found_by_a_unique_beginning_of_their_id(watchbill: Watchbill) -> None:
    """Among unfinished and finished jobs alike."""
    ids = ("01a00000-0000-7000-8000-00000000000a", "01a00000-0000-7000-8000-00000000000b")
    for job in (NOBODY, *ids):
        sql(watchbill, "SELECT watchbill.enqueue(%s, id => %s::uuid)", f"t{job[-1]}", job)
    run(watchbill, "failed")
    shown = json.loads(watchbill.here("jobs", "show", "019", "--json").stdout)
    assert (shown["id"], shown["state"]) == (NOBODY, "dead")
    assert watchbill.here("jobs", "cancel", "01a00000000070008000-00000000000A").stdout == f"{ids[0]} canceled\n"
    ambiguous = watchbill.here("jobs", "show", "01a0")
    assert ambiguous.returncode == 2
    assert "01a0 is the beginning of 2 ids" in ambiguous.stderr
    assert f"{ids[0]}  canceled   ta\n  {ids[1]}  queued     tb" in ambiguous.stderr
    assert ids[0] in watchbill.here("jobs", "--after", ids[1][:-1] + "b").stdout
    assert watchbill.here("jobs", "tree", "019").stdout.startswith(f"t0  {NOBODY} <")


def test_beginnings_of_ids_are_found_through_indexes(watchbill: Watchbill) -> None:
    many = 'SELECT jsonb_agg(\'{"type": "t"}\'::jsonb) FROM generate_series(1, 5000)'
    sql(watchbill, f"SELECT count(*) FROM watchbill.enqueue_many(({many}))")
    sql(watchbill, "ANALYZE watchbill.jobs")
    params = {"lowest": UUID(NOBODY), "highest": UUID(NOBODY), "limit": 11}
    with psycopg.connect(watchbill.environ["WATCHBILL_DATABASE_URL"]) as connection:
        rows = connection.execute(f"EXPLAIN {queries('watchbill')['jobs_by_prefix']}".encode(), params).fetchall()
    plan = "\n".join(line for (line,) in rows)
    assert "jobs_pkey" in plan
    assert "Seq Scan on jobs" not in plan


def test_short_ids_are_unique_among_waiting_and_finished_jobs(watchbill: Watchbill) -> None:
    same_instant = [
        UUID(f"01a00000-0000-7{middle}-8000-{last:012x}") for middle, last in (("000", 1), ("000", 2), ("001", 3))
    ]
    alone = UUID("01a00000-0001-7000-8000-000000000001")
    for job in (*same_instant, alone):
        sql(watchbill, "SELECT watchbill.enqueue('t', id => %s)", job)
    watchbill.here("jobs", "cancel", str(same_instant[0]))
    options = GlobalOptions(watchbill.environ["WATCHBILL_DATABASE_URL"], "watchbill")
    short = options.run(job_operations.shorten_ids([*same_instant[1:], alone]))
    assert short == {
        same_instant[1]: str(same_instant[1]),
        same_instant[2]: "01a00000-0000-7001",
        alone: "01a00000-0001",
    }
    for job, beginning in short.items():
        assert find_job(options, beginning) == job


def test_enqueue_takes_attempts_timeout_and_parents(watchbill: Watchbill) -> None:
    first = enqueue(watchbill, "t")
    second = enqueue(watchbill, "t", "--max-attempts", "3", "--timeout", "90s", "--depends-on", first)
    shown = json.loads(watchbill.here("jobs", "show", second, "--json").stdout)
    assert (shown["max_attempts"], shown["timeout"], shown["state"]) == (3, 90.0, "blocked")
    assert [each["id"] for each in shown["dependencies"]] == [first]


def test_show_begins_with_state_wait_and_run_time(watchbill: Watchbill) -> None:
    job = enqueue(watchbill, "t")
    run(watchbill, "succeeded")
    names = re.findall(r"^\w+", watchbill.here("jobs", "show", job).stdout, re.MULTILINE)
    assert names[:4] == ["id", "state", "waited", "ran"]


def test_logs_prints_the_lines_of_runs_and_follows_until_the_job_has_ended(watchbill: Watchbill) -> None:
    job = enqueue(watchbill, "send")
    none = watchbill.here("jobs", "logs", job)
    assert (none.returncode, none.stdout) == (0, "")
    assert "No log lines are stored" in none.stderr
    sql(
        watchbill,
        """SELECT watchbill._store_logs(ARRAY[c.id], ARRAY[c.fence], ARRAY[E'one\\x1b\ntwo'])
           FROM watchbill.register('logger') n, LATERAL watchbill.claim(n) c""",
    )
    sql(watchbill, "SELECT watchbill.cancel(%s, force => true)", job)
    followed = watchbill.here("jobs", "logs", job[:18], "--follow")
    assert (followed.returncode, followed.stdout) == (0, "one\\x1b\ntwo\n")
    (line,) = watchbill.here("jobs", "logs", job, "--run", "1", "--json").stdout.splitlines()
    assert (json.loads(line)["run"], json.loads(line)["lines"]) == (1, ["one\x1b", "two"])
    assert watchbill.here("jobs", "logs", job, "--run", "2").stdout == ""


def test_states_may_be_given_together(watchbill: Watchbill) -> None:
    jobs = [enqueue(watchbill, "t") for _ in range(3)]
    run(watchbill, "succeeded")
    watchbill.here("jobs", "cancel", jobs[1])
    for words in (("queued,canceled",), ("queued", "--state", "canceled")):
        listed = watchbill.here("jobs", "--state", *words).stdout
        assert [job in listed for job in jobs] == [False, True, True]


def test_attempts_count_the_one_that_runs(watchbill: Watchbill) -> None:
    first, second = enqueue(watchbill, "t"), enqueue(watchbill, "t")
    assert "ready  0/10" in watchbill.here("jobs").stdout
    sql(watchbill, "SELECT watchbill.claim(watchbill.register('clerk'))")
    assert "running  1/10" in watchbill.here("jobs", "--state", "running").stdout
    watchbill.here("jobs", "cancel", second)
    assert "canceled  0/10" in watchbill.here("jobs", "--state", "canceled").stdout
    assert "attempt           1/10" in watchbill.here("jobs", "show", first).stdout


def test_a_succeeded_job_runs_again_only_after_asking(watchbill: Watchbill) -> None:
    job = enqueue(watchbill, "t")
    run(watchbill, "succeeded")
    asked = watchbill("jobs", "retry", job)
    assert (asked.returncode, f"{job} has succeeded. Run it again?" in asked.stdout) == (1, True)
    assert watchbill.here("jobs", "retry", job, "--yes").stdout == f"{job} queued again; it was succeeded\n"


def test_enqueue_takes_an_instant(watchbill: Watchbill) -> None:
    enqueue(watchbill, "t", "--run-at", "2040-01-01T10:00+02:00")
    [(listed,)] = [(job["run_at"],) for job in json.loads(watchbill.here("jobs", "--json").stdout)]
    assert listed == "2040-01-01T08:00:00Z"


def test_empty_lists_say_so(watchbill: Watchbill) -> None:
    said = {noun: watchbill.here(noun) for noun in ("jobs", "dead", "nodes", "schedules", "queues")}
    assert all(done.stdout == "" and done.stderr for done in said.values())
    assert "watchbill jobs enqueue TYPE" in said["jobs"].stderr
    assert "No job matches" in watchbill.here("jobs", "--type", "t").stderr
    assert "No job is dead" in watchbill.here("dead", "groups").stderr


def test_enqueue_warns_about_a_type_that_no_node_handles(watchbill: Watchbill) -> None:
    types = '{"mail.send": 1}'
    sql(watchbill, "SELECT watchbill.register('clerk', types => %s, queues => '{default,mail}')", types)
    done = watchbill.here("jobs", "enqueue", "mail.sent")
    assert done.returncode == 0
    assert "No live node handles mail.sent; the job waits for one that does. Did you mean mail.send?" in done.stderr
    assert watchbill.here("jobs", "enqueue", "mail.send").stderr == ""
    assert watchbill.here("jobs", "enqueue", "mail.sent", "--unchecked").stderr == ""


def test_enqueue_warns_about_a_queue_that_no_node_serves(watchbill: Watchbill) -> None:
    sql(watchbill, """SELECT watchbill.register('clerk', types => '{"t": 1}', queues => '{default,mail}')""")
    assert watchbill.here("jobs", "enqueue", "t", "--queue", "mail").stderr == ""
    done = watchbill.here("jobs", "enqueue", "t", "--queue", "mial")
    assert (done.returncode, done.stderr) == (
        0,
        "No live node serves queue mial; the job waits for one that does. Did you mean mail?\n",
    )
    sql(watchbill, "UPDATE watchbill.nodes SET queues = NULL")
    assert watchbill.here("jobs", "enqueue", "t", "--queue", "other").stderr == "", "the node may serve any"


def test_enqueue_refuses_a_queue_that_neither_the_app_nor_a_node_serves(watchbill: Watchbill) -> None:
    (watchbill.directory / "tasks.py").write_text(
        "from watchbill import App\n\napp = App()\n\n\n@app.task(queue='mail')\ndef send() -> None: ...\n"
    )
    waits = watchbill.here("jobs", "enqueue", "tasks.send")
    assert (waits.returncode, "No live node serves queue mail" in waits.stderr) == (0, True)
    refused = watchbill.here("jobs", "enqueue", "tasks.send", "--queue", "mial")
    assert refused.returncode == 2
    assert "No live node serves queue mial, and no task of tasks:app uses it.\nDid you mean mail?" in refused.stderr
    assert watchbill.here("jobs", "enqueue", "tasks.send", "--queue", "mial", "--unchecked").returncode == 0
    sql(watchbill, "SELECT watchbill.register('clerk', queues => '{mial,mail}')")
    assert watchbill.here("jobs", "enqueue", "tasks.send", "--queue", "mial").stderr == ""


def test_enqueue_finds_the_app_in_the_module_that_the_type_names(watchbill: Watchbill) -> None:
    """After `watchbill up corner_shop`, a second terminal knows the options of its tasks too."""
    (watchbill.directory / "corner_shop.py").write_text(
        "import watchbill\n\napp = watchbill.App()\n\n\n"
        "@app.task(queue='mail', retry=3)\ndef send(to: str) -> None: ...\n"
    )
    done = watchbill.here("jobs", "enqueue", "corner_shop.send", '{"to": "ada"}')
    assert done.returncode == 0, done.stderr
    [job] = json.loads(watchbill.here("jobs", "--json").stdout)
    assert (job["queue"], job["max_attempts"]) == ("mail", 3)
    refused = watchbill.here("jobs", "enqueue", "corner_shop.snd", '{"to": "ada"}')
    assert (refused.returncode, "Did you mean corner_shop.send?" in refused.stderr) == (2, True)
    assert "to is missing" in watchbill.here("jobs", "enqueue", "corner_shop.send", "{}").stderr


def test_show_has_the_error_of_every_attempt_and_the_last_traceback(watchbill: Watchbill) -> None:
    """As the tutorial says."""
    job = enqueue(watchbill, "t")
    sql(watchbill, "SELECT watchbill.register('clerk')")
    for word in ("first", "second"):
        sql(
            watchbill,
            """SELECT watchbill.fail(c.id, c.fence, %s::jsonb, delay => '0 s')
            FROM watchbill.nodes n, watchbill.claim(n.epoch, '{default}', 1) c""",
            json.dumps({"type": "ValueError", "message": f"the {word}", "traceback": f"Traceback of the {word}"}),
        )
    shown = watchbill.here("jobs", "show", job).stdout
    assert re.findall(r"failed .* ValueError: the (\w+)", shown) == ["first", "second"]
    assert re.findall(r"Traceback of the (\w+)", shown) == ["second"]


def test_pause_refuses_a_name_that_nothing_uses(watchbill: Watchbill) -> None:
    sql(watchbill, """SELECT watchbill.register('clerk', types => '{"send": 1}', queues => '{mail}')""")
    refused = watchbill.here("queues", "pause", "mial")
    assert refused.returncode == 2
    assert (
        "Nothing uses a queue named mial.\nDid you mean mail? To pause it anyway, give --unchecked." in refused.stderr
    )
    refused = watchbill.here("queues", "pause", "nosuch")
    assert "Nothing uses a queue named nosuch.\nIn use: " in refused.stderr
    assert "Nothing uses a type named sent." in watchbill.here("queues", "pause", "--type", "sent").stderr
    assert watchbill.here("queues", "pause", "mail").returncode == 0
    assert watchbill.here("queues", "pause", "--type", "send").returncode == 0
    assert watchbill.here("queues", "pause", "mial", "--unchecked").stdout == "queue mial paused\n"
    assert watchbill.here("queues", "pause", "mial").stdout == "queue mial was paused already\n"
    enqueue(watchbill, "t", "--queue", "waiting", "--unchecked")
    assert watchbill.here("queues", "pause", "waiting").returncode == 0


WRONG: list[tuple[list[str], int, str]] = [
    (["jobs", "enqueue", "t", "{"], 2, "Invalid JSON in payload"),
    (["jobs", "enqueue", "t", '{"a": NaN}'], 2, "JSON has no NaN"),
    (["jobs", "enqueue", "t", "[1]"], 2, "it is not an object"),
    (["jobs", "enqueue", "t", '{"a": ["x", "b\\u0000"]}'], 2, "a[1] cannot be stored"),
    (["jobs", "enqueue", "t", '{"a": "\\ud800"}'], 2, "half of a surrogate pair"),
    (["jobs", "enqueue", "t", '{"a": 18446744073709551616}'], 2, "a cannot be stored"),
    (["jobs", "enqueue", ""], 2, "type must be"),
    (["jobs", "enqueue", "t", "--delay", "5 parsecs"], 2, "delay='5 parsecs' is invalid"),
    (["jobs", "enqueue", "t", "--delay", "nan"], 2, "delay='nan' is invalid"),
    (["jobs", "enqueue", "t", "--delay", "1e18"], 2, "delay='1e18' is invalid"),
    (["jobs", "enqueue", "t", "--delay", "-1"], 2, "delay='-1' is invalid"),
    (["jobs", "enqueue", "t", "--priority", "40000"], 2, "priority=40000 is invalid"),
    (["jobs", "show", "x"], 2, "The job id 'x' is invalid"),
    (["jobs", "show", "0190"], 1, "There is no job whose id begins with 0190"),
    (["jobs", "list", "--after", "0190"], 1, "There is no job whose id begins with 0190"),
    (["jobs", "show", NOBODY], 1, "There is no job"),
    (["jobs", "cancel", NOBODY], 1, "There is no job"),
    (["jobs", "retry", NOBODY], 1, "There is no job"),
    (["jobs", "retry", NOBODY, "--run-at", "0001-01-01"], 2, "The instant '0001-01-01' is invalid"),
    (["jobs", "enqueue", "t", "--run-at", "soon"], 2, "The instant 'soon' is invalid"),
    (["jobs", "release", NOBODY], 1, "is not running"),
    (["jobs", "list", "--state", "waiting"], 2, "The states are blocked, queued"),
    (["jobs", "list", "--state", "queued,rady"], 2, "The state 'rady' is invalid"),
    (["jobs", "list", "--limit", "0"], 2, "limit"),
    (["queues", "pause"], 2, "need a queue or a type"),
    (["queues", "pause", ""], 2, "Queue or type is invalid"),
    (["queues", "resume", "x"], 1, "was not paused"),
    (["nodes", "drain", "x"], 1, "no active node"),
]


@pytest.mark.parametrize(("words", "code", "says"), WRONG, ids=lambda value: str(value)[:50])
def test_invalid_commands_print_one_clear_message(watchbill: Watchbill, words: list[str], code: int, says: str) -> None:
    done = watchbill.here(*words)
    said = done.stdout + done.stderr
    assert (done.returncode, says in said, "Traceback" in said) == (code, True, False), said


def test_why_of_a_queue_a_type_and_a_tenant_counts_causes(watchbill: Watchbill) -> None:
    first, second = enqueue(watchbill, "t"), enqueue(watchbill, "t")
    enqueue(watchbill, "u", "--delay", "2h")
    watchbill.here("queues", "pause", "default", "--reason", "rain")
    told = watchbill.here("queues", "why", "default")
    assert told.returncode == 1
    said = rf"^2 +paused +({first}|{second}) +queue default is paused by .*: rain$"
    assert re.search(said, told.stdout, re.MULTILINE)
    assert "    watchbill queues resume default" in told.stdout.splitlines()
    rows = json.loads(watchbill.here("types", "why", "u", "--json").stdout)
    assert [(row["cause"], row["jobs"], row["is_estimate"]) for row in rows] == [("delayed", 1, False)]
    rows = json.loads(watchbill.here("tenants", "why", "default", "--json").stdout)
    assert {row["cause"]: row["jobs"] for row in rows} == {"paused": 2, "delayed": 1}
    empty = watchbill.here("queues", "why", "mail")
    assert (empty.returncode, empty.stderr) == (0, "It has no unfinished jobs.\n")


def test_list_takes_a_filter(watchbill: Watchbill) -> None:
    first = enqueue(watchbill, "mail.send", '{"user": {"id": 42}}', "--queue", "mail")
    second = enqueue(watchbill, "mail.bounce", '{"user": {"id": "42"}}')
    enqueue(watchbill, "other", '{"user": {"id": 7}}')
    done = watchbill.here("jobs", "list", "--where", "type:mail.* payload.user.id:42")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["id", second, first]
    done = watchbill.here("jobs", "list", "--where", "payload.user.id:42", "--queue", "mail", "--json")
    page = json.loads(done.stdout)
    assert [job["id"] for job in page["jobs"]] == [first]
    assert (page["next"], page["is_complete"]) == (None, True)
    done = watchbill.here("jobs", "list", "--where", "mail", "--limit", "1")
    assert second in done.stdout
    assert f"--after {second}" in done.stderr
    done = watchbill.here("jobs", "list", "--where", "mail", "--limit", "1", "--after", second)
    assert first in done.stdout
    assert watchbill.here("jobs", "list", "--where", "type:none").stderr == "No job matches.\n"


def test_invalid_filter_names_the_column(watchbill: Watchbill) -> None:
    done = watchbill.here("jobs", "list", "--where", "type:a state:faild")
    assert done.returncode == 2
    assert "invalid at column 14: there is no state 'faild'" in done.stderr
    assert "               ^" in done.stderr


def test_all_jobs_that_match_are_changed(watchbill: Watchbill) -> None:
    first, second = enqueue(watchbill, "mail.send"), enqueue(watchbill, "mail.bounce")
    other = enqueue(watchbill, "other")
    changes = {
        ("prioritize", "--priority", "4"): "2 jobs changed",
        ("move", "--to", "mail"): "2 jobs moved",
        ("cancel", "--reason", "twice"): "2 jobs canceled or asked to stop",
        ("retry",): "0 jobs match",
    }
    for (verb, *more), said in changes.items():
        done = watchbill.here("jobs", verb, "--where", "type:mail.*", "--yes", *more)
        assert (done.returncode, done.stdout.splitlines()[-1]) == (0, said), done.stderr
    jobs = {job: json.loads(watchbill.here("jobs", "show", job, "--json").stdout) for job in (first, second, other)}
    assert [(jobs[job]["state"], jobs[job]["queue"], jobs[job]["priority"]) for job in jobs] == [
        ("canceled", "mail", 4),
        ("canceled", "mail", 4),
        ("queued", "default", 0),
    ]
    operations = json.loads(watchbill.here("operations", "--json").stdout)
    assert [(each["kind"], each["done"]) for each in operations] == [
        ("cancel", 2), ("move_queue", 2), ("set_priority", 2),
    ]  # fmt: skip
    shown = watchbill.here("operations", "show", str(operations[0]["id"])).stdout
    assert all(word in shown for word in ("cancel", "type:mail.*", "done"))


def test_number_of_jobs_is_typed_before_a_purge(watchbill: Watchbill) -> None:
    enqueue(watchbill, "send")
    run(watchbill, "succeeded")
    for typed, code in (("2\n", 2), ("y\n", 2), ("1\n", 0)):
        with patch("sys.stdin", io.StringIO(typed)):
            done = watchbill.here("jobs", "purge", "--where", "type:send")
        assert done.returncode == code, done.stderr
        assert "Purge 1 job? Type the number" in done.stdout
    assert watchbill.here("jobs", "--json").stdout == "[]\n"


def test_job_or_filter_is_asked_for(watchbill: Watchbill) -> None:
    for words in ((), (NOBODY, "--where", "type:a")):
        done = watchbill.here("jobs", "cancel", *words)
        assert (done.returncode, "id of a job or a filter" in done.stderr) == (2, True)
    done = watchbill.here("jobs", "cancel", "--where", "type:a", "--force")
    assert (done.returncode, "--force is for one job" in done.stderr) == (2, True)
    done = watchbill.here("jobs", "retry", "--where", "")
    assert (done.returncode, "The filter is empty" in done.stderr) == (2, True)
    done = watchbill.here("jobs", "retry", "--where", "type:a", "--rate", "fast")
    assert (done.returncode, "The rate 'fast' is invalid" in done.stderr) == (2, True)


def test_operation_is_paused_resumed_and_canceled(watchbill: Watchbill) -> None:
    enqueue(watchbill, "send")
    sql(
        watchbill,
        """SELECT watchbill.start_operation(
        'cancel', '[{"field": "type", "operator": "=", "values": ["send"]}]')""",
    )
    ((number,),) = sql(watchbill, "SELECT id FROM watchbill.bulk_operations")
    for verb, state in (("pause", "paused"), ("resume", "running"), ("cancel", "canceled")):
        assert watchbill.here("operations", verb, str(number)).stdout == f"operation {number} is {state}\n"
    done = watchbill.here("operations", "resume", str(number))
    assert (done.returncode, done.stderr) == (1, f"operation {number} is canceled\n")
    done = watchbill.here("operations", "show", "999")
    assert (done.returncode, "There is no operation 999" in done.stderr) == (1, True)

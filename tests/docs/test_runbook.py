"""docs/howto/runbook.md: each command and statement of each situation runs, and each alert is a rule that happens."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.command import Watchbill
from tests.compat.walk import Document, find_seeds, split_sql
from tests.docs.programs import DOCS
from tests.store import test_alert_rules

PAGE = DOCS / "howto" / "runbook.md"
SHORT_ID, LONG_ID = "01a1e6bb-79", "01a1e6bb-79c2-7c54-a0f5-3b1f9a7e2d10"

# What JobForge's runbook has, and the section that has it here.
JOBFORGE = {
    "Monitoring / Key Metrics": ("How many jobs run, and for how long", "Many runs fail"),
    "Troubleshooting / Stuck Jobs": ("A job runs for too long",),
    "Troubleshooting / Dead Letter Queue": ("Jobs are dead",),
    "Troubleshooting / Worker Health": ("What each worker does", "Heartbeats are above their budget", "A worker died"),
    "Scaling / Horizontal (Workers)": ("A queue grows",),
    "Scaling / Vertical (Database)": ("Everything is slow",),
    "Cost Controls / Idle Polling Backoff (Worker)": ("What an idle worker costs",),
    "Cost Controls / Heartbeat Backoff (Worker)": ("What an idle worker costs",),
    "Maintenance / Purge Old Jobs": ("Old jobs take too much space",),
    "Maintenance / Vacuum & Analyze": ("Everything is slow",),
    "Alerts / Recommended Alerts": ("The seven alerts of JobForge's runbook",),
    "Alerts / Example Alert (Prometheus)": ("The seven alerts of JobForge's runbook",),
    "Backfills / Reprocess Failed Jobs": ("Run failed jobs again",),
    "Backfills / Bulk Enqueue": ("Enqueue very many jobs",),
    "Disaster Recovery / Database Backup": ("The database is lost",),
    "Disaster Recovery / Restore": ("The database is lost",),
    "Performance Tuning / Optimize Claim Query": ("Everything is slow",),
    "Performance Tuning / Connection Pooling": ("What an idle worker costs",),
    "Performance Tuning / Payload Optimization": ("Old jobs take too much space",),
}
# A part of what the commands and statements of a section must print in the story of these tests.
SHOWN = {
    "A queue grows": ("mail", "ready"),
    "One job does not start": ("waits for the limit crm",),
    "A queue is paused": ("reports", "provider down"),
    "A limit is full": ("crm",),
    "A schedule does not fire": ("nightly",),
    "Many runs fail": ("mail.send", "25.00", "refused"),
    "Jobs are dead": ("refused",),
    "A job runs for too long": ("shop.ship", "web-1"),
    "What each worker does": ("web-1", "active"),
    "A worker died": ("web-0", "lost"),
    "A job kills its worker": ("shop.pack",),
    "Heartbeats are above their budget": ("acme",),
    "Everything is slow": ("jobs_ready",),
    "Enqueue very many jobs": ("100",),
    "Keep alerts quiet while you work": ("upgrade of the database",),
}


def sections() -> dict[str, str]:
    """The text below each heading that has commands, statements or alerts."""
    parts = re.split(r"^##+ (.*)$", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def code(section: str, language: str) -> str:
    return "".join(re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL))


STORY = """
SELECT watchbill.register('web-0', '1 second', 'shop', '{"shop.pack": 1}', queues => '{pack}');
SELECT watchbill.enqueue('shop.pack', '{}', queue => 'pack');
SELECT count(*) FROM watchbill.claim((SELECT epoch FROM watchbill.nodes WHERE name = 'web-0'), '{pack}');
UPDATE watchbill.beats SET at = at - interval '10 minutes';
SELECT count(*) FROM watchbill.reclaim(ARRAY(SELECT epoch FROM watchbill.beats), ARRAY(SELECT n FROM watchbill.beats));
SELECT watchbill.register(
  'web-1', '1 hour', 'shop', '{"shop.ship": 1, "mail.send": 1}', capacity => 4,
  queues => '{mail,slow,failing,default}');
SELECT watchbill.ensure_limits('shop', '[{"name": "crm", "max": 1}]', '[]');
SELECT watchbill.add_schedule('nightly', '0 3 * * *', 'shop.ship');
SELECT watchbill.set_endpoint('crm', '{"base_url": "https://crm.example"}');
SELECT watchbill.declare_group('shop');
SELECT watchbill.pause('reports', reason => 'provider down');
SELECT watchbill.enqueue('mail.send', '{"to": "x"}', queue => 'failing', max_attempts => 1);
"""


@pytest.fixture(scope="module")
def page() -> dict[str, str]:
    return sections()


@pytest.fixture
def story(schema_database: str) -> dict[str, str]:
    """A shop in which most of what the page describes has happened. The ids of jobs, by what became of them."""
    with psycopg.connect(schema_database, autocommit=True) as connection:

        def one(statement: str, *params: object) -> str:
            row = connection.execute(statement.encode(), params).fetchone()
            assert row is not None
            return str(row[0])

        for statement in split_sql(STORY):
            connection.execute(statement.encode())
        epoch = one("SELECT epoch FROM watchbill.nodes WHERE name = 'web-1'")
        dead = one("SELECT id FROM watchbill.claim(%s::bigint, '{failing}')", epoch)
        connection.execute(
            "SELECT watchbill.fail(%s, (SELECT fence FROM watchbill.jobs WHERE id = %s), %s::jsonb, false)",
            (dead, dead, json.dumps({"kind": "permanent", "type": "ValueError", "message": "refused"})),
        )
        running = one("SELECT id FROM watchbill.enqueue('shop.ship', '{}', queue => 'slow', limit_keys => '{crm}')")
        one("SELECT id FROM watchbill.claim(%s::bigint, '{slow}')", epoch)
        connection.execute(
            "INSERT INTO watchbill.runs (job_id, fence, epoch, started_at, seen_at) "
            "SELECT id, fence, %s, watchbill.now() - interval '2 hours', watchbill.now() FROM watchbill.jobs "
            "WHERE id = %s",
            (epoch, running),
        )
        waiting = one("SELECT id FROM watchbill.enqueue('shop.ship', '{}', queue => 'slow', limit_keys => '{crm}')")
        connection.execute(
            "SELECT watchbill.enqueue('mail.send', '{\"to\": \"y\"}', queue => 'mail', tenant => 'acme')"
        )
        tally = [
            {"queue": "mail", "type": "mail.send", "tenant": "default", "succeeded": 3, "skipped": 0, "failed": 1,
             "timed_out": 0, "snoozed": 0, "dead": 1, "canceled": 0, "run_seconds": 8.0, "wait_seconds": 1.0}
        ]  # fmt: skip
        connection.execute("SELECT watchbill._report_tally(%s, 1, %s::jsonb)", (epoch, json.dumps(tally)))
        connection.execute("SELECT watchbill._observe() FROM generate_series(1, 20)")
    return {"dead": dead, "running": running, "waiting": waiting}


def choose_job(title: str, story: dict[str, str]) -> str:
    return story[{"Jobs are dead": "dead", "A job runs for too long": "running"}.get(title, "waiting")]


def test_every_command_and_statement_runs(
    page: dict[str, str], story: dict[str, str], schema_database: str, tmp_path: Path
) -> None:
    items = [json.dumps({"item_id": number, "to": "z"}) for number in range(3)]
    (tmp_path / "items.jsonl").write_text("\n".join(items))
    watchbill = Watchbill(tmp_path, {"WATCHBILL_DATABASE_URL": schema_database, "COLUMNS": "200"})
    commands = statements = 0
    with psycopg.connect(schema_database, autocommit=True) as connection:
        for title, text in page.items():
            job, printed = choose_job(title, story), []
            for statement in split_sql(code(text, "sql")):
                cursor = connection.execute(statement.replace(LONG_ID, job).encode())
                printed += [str(row) for row in cursor.fetchall()] if cursor.description else []
                statements += 1
            for line in code(text, "bash").splitlines():
                words = shlex.split(line.replace(SHORT_ID, job), comments=True)
                assert words[0] == "watchbill", line
                done = watchbill.here(*words[1:])
                assert done.returncode in (0, 1), f"{line}\n{done.stdout}{done.stderr}"
                assert "Traceback" not in done.stderr, line
                printed += [done.stdout, done.stderr]
                commands += 1
            shown = "\n".join(printed)
            missing = [part for part in SHOWN.get(title, ()) if part not in shown]
            assert missing == [], f"{title}: {shown}"
    assert set(SHOWN) <= set(page)
    assert (commands > 30, statements > 30) == (True, True)


def test_every_rule_has_a_situation_and_happens_in_a_test(page: dict[str, str], schema_database: str) -> None:
    with psycopg.connect(schema_database) as connection:
        rules = {rule for (rule,) in connection.execute("SELECT rule FROM watchbill._alert_rule_defaults()").fetchall()}
    lines = "\n".join(re.findall(r"^Alerts?: (.*?)(?:\n\n|\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL))
    named = set(re.findall(r"`([a-z_]+)`", lines)) & rules
    assert named == rules
    tested = {case.rule for case in test_alert_rules.CASES} | test_alert_rules.TESTED_APART
    assert sorted(rules - tested) == [], "tests/store/test_alert_rules.py makes each rule happen"


def test_every_situation_of_jobforges_runbook_is_here(page: dict[str, str]) -> None:
    document = Document.load("003")
    assert set(JOBFORGE) == set(document.headings) | set(document.not_built)
    assert sorted({title for titles in JOBFORGE.values() for title in titles} - set(page)) == []
    if find_seeds() is not None:
        assert {block.heading for block in document.blocks} <= set(JOBFORGE)

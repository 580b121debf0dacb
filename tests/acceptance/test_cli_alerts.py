"""`watchbill alerts` and `watchbill silences`."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.command import Watchbill
from watchbill.settings import Settings


@pytest.fixture
def watchbill(tmp_path: Path, schema_database: str) -> Watchbill:
    (tmp_path / "watchbill.toml").write_text(f'database_url = "{schema_database}"\n')
    return Watchbill(tmp_path)


@pytest.fixture
def connection(schema_database: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(schema_database, autocommit=True) as connection:
        yield connection


def test_alerts_are_listed_with_what_helps(watchbill: Watchbill, connection: psycopg.Connection) -> None:
    empty = watchbill.here("alerts")
    assert (empty.returncode, empty.stdout, empty.stderr) == (0, "", "Nothing is wrong, as far as the rules say.\n")
    connection.execute(
        "INSERT INTO watchbill.alerts (rule, subject, severity, state, since, fired_at, value, above, reason) "
        "VALUES ('backlog', 'mail', 'warning', 'firing', now(), now(), 1200, 1000, '1,200 jobs are ready')"
    )
    shown = watchbill.here("alerts", "list", "--rule", "backlog")
    assert shown.returncode == 1
    assert "1,200 jobs are ready" in shown.stdout
    (alert,) = json.loads(watchbill.here("alerts", "--json").stdout)
    assert (alert["state"], alert["help"]) == ("firing", "watchbill queues why mail")
    connection.execute("UPDATE watchbill.alerts SET state = 'cleared', cleared_at = now()")
    assert watchbill.here("alerts").returncode == 0
    assert "cleared" in watchbill.here("alerts", "list", "--since", "1h").stdout


def test_rules_are_changed_and_reset(watchbill: Watchbill) -> None:
    words = ("--above", "5000", "--for", "10m", "--severity", "critical", "--off")
    assert watchbill.here("alerts", "set", "backlog", "--subject", "mail", *words).stdout == "backlog mail changed\n"
    rules = json.loads(watchbill.here("alerts", "rules", "--json").stdout)
    (found,) = [each for each in rules if (each["rule"], each["subject"]) == ("backlog", "mail")]
    assert [found[name] for name in ("above", "lasting", "severity", "is_enabled")] == [5000, 600, "critical", False]
    assert "5000 jobs" in watchbill.here("alerts", "rules").stdout
    assert watchbill.here("alerts", "reset", "backlog", "--subject", "mail").returncode == 0
    assert watchbill.here("alerts", "reset", "backlog", "--subject", "mail").returncode == 1
    for wrong in (("set", "backlog"), ("set", "backlog", "--for", "soon")):
        assert watchbill.here("alerts", *wrong).returncode == 2
    refused = watchbill.here("alerts", "set", "backlok", "--above", "1")
    assert (refused.returncode, "no alert rule 'backlok'" in refused.stderr) == (2, True)


def test_routes_are_set_tried_and_removed(watchbill: Watchbill, connection: psycopg.Connection) -> None:
    assert "sent nowhere" in watchbill.here("alerts", "routes").stderr
    for words in ((), ("--log", "--mail", "a@b.example"), ("--log", "--remove")):
        assert watchbill.here("alerts", "route", "ops", *words).returncode == 2
    refused = watchbill.here("alerts", "route", "chat", "--slack", "https://hooks.example/T0")
    assert "Such an address is a secret" in refused.stderr
    made = watchbill.here("alerts", "route", "ops", "--log", "--rule", "backlog", "--rule", "oldest")
    assert made.stdout == "ops set; to try it: watchbill alerts test ops\n"
    assert "rule backlog or oldest" in watchbill.here("alerts", "routes").stdout
    unsent = watchbill.here("alerts", "test", "ops", "--wait", "0s")
    assert (unsent.returncode, "no worker has sent it within 0s" in unsent.stderr) == (1, True)
    connection.execute("UPDATE watchbill.alert_deliveries SET tries = 1, error = 'the receiver answered 500: x'")
    assert "the receiver answered 500" in watchbill.here("alerts", "deliveries", "--route", "ops").stdout
    connection.execute("UPDATE watchbill.alert_deliveries SET state = 'given_up', ended_at = now()")
    given_up = watchbill.here("alerts", "routes")
    assert (given_up.returncode, "given up" in given_up.stdout) == (1, True)
    assert watchbill.here("alerts", "test", "none").returncode == 2
    assert watchbill.here("alerts", "route", "ops", "--remove").stdout == "ops removed\n"
    assert watchbill.here("alerts", "route", "ops", "--remove").returncode == 1


def deliver_at_once(connection: psycopg.Connection) -> None:
    """In place of a worker."""
    connection.execute(
        """
        CREATE FUNCTION watchbill.end_at_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
          NEW.state := 'delivered'; NEW.ended_at := now(); RETURN NEW; END $$;
        CREATE TRIGGER at_once BEFORE INSERT ON watchbill.alert_deliveries
          FOR EACH ROW EXECUTE FUNCTION watchbill.end_at_once()"""
    )


def test_a_test_that_was_delivered_is_a_success(watchbill: Watchbill, connection: psycopg.Connection) -> None:
    deliver_at_once(connection)
    watchbill.here("alerts", "route", "ops", "--log")
    sent = watchbill.here("alerts", "test", "ops")
    assert (sent.returncode, sent.stdout) == (0, "delivered to ops\n")


def test_the_commands_of_the_guide_work(watchbill: Watchbill, connection: psycopg.Connection) -> None:
    deliver_at_once(connection)
    connection.execute("ALTER TABLE watchbill.silences ALTER COLUMN id RESTART WITH 12")
    guide = (Path(__file__).parents[2] / "docs" / "howto" / "alerts.md").read_text()
    commands = re.findall(r"^\$ watchbill (.+)$", guide, re.MULTILINE)
    assert len(commands) > 10
    for command in commands:
        ended = watchbill.here(*shlex.split(command))
        assert (ended.returncode, ended.stderr) == (0, ""), command
    (settings,) = re.findall(r"```toml\n(.+?)```", guide, re.DOTALL)
    read = Settings.load(environ={}, **tomllib.loads(settings))
    assert dict(read.alert_commands) == {"page": "/usr/local/bin/page --team shop"}


def test_silences_are_added_and_ended(watchbill: Watchbill) -> None:
    assert watchbill.here("silences").stderr == "No silence is in force.\n"
    for words in (("--rule", "backlog"), ("--for", "1h"), ("--for", "1h", "--everything", "--rule", "x")):
        assert watchbill.here("silences", "add", *words).returncode == 2
    added = watchbill.here("silences", "add", "--rule", "backlog", "--subject", "m*", "--for", "2h", "--reason", "sale")
    assert added.stdout == "silence 1 added: rule backlog, subject m*\n"
    assert "sale" in watchbill.here("silences", "list").stdout
    assert watchbill.here("silences", "end", "1").stdout == "silence 1 ended\n"
    assert watchbill.here("silences", "end", "1").returncode == 1
    (ended,) = json.loads(watchbill.here("silences", "list", "--ended", "--json").stdout)
    assert ended["matcher"] == {"rule": ["backlog"], "subject": ["m*"]}

"""`watchbill stats --by`, `stats rebuild`, `top`, `metrics` and `health`."""

from __future__ import annotations

import json
from pathlib import Path

import psycopg
import pytest

from tests.acceptance.command import Watchbill
from tests.acceptance.terminal import terminal
from tests.worker.test_health import read_metrics


@pytest.fixture
def watchbill(tmp_path: Path, schema_database: str) -> Watchbill:
    """A node has reported 3 runs of mail and 1 of other work, and 2 jobs wait."""
    with psycopg.connect(schema_database, autocommit=True) as connection:
        connection.execute("SELECT watchbill.register('a', app => 'shop', queues => '{mail}')")
        rows = [
            {"queue": queue, "type": "t", "tenant": "default", "succeeded": good, "skipped": 0, "failed": bad,
             "timed_out": 0, "snoozed": 0, "dead": 0, "canceled": 0, "run_seconds": 2.0, "wait_seconds": 1.0}
            for queue, good, bad in (("mail", 2, 1), ("other", 1, 0))
        ]  # fmt: skip
        connection.execute(
            "SELECT watchbill._report_tally((SELECT epoch FROM watchbill.nodes), 1, %s::jsonb)", (json.dumps(rows),)
        )
        for _ in range(2):
            connection.execute("SELECT watchbill.enqueue('t', queue => 'mail')")
        connection.execute("SELECT watchbill._observe() FROM generate_series(1, 10)")  # a call may do only some parts
    return Watchbill(tmp_path, {"WATCHBILL_DATABASE_URL": schema_database})


def test_stats_by_queue_and_by_hour(watchbill: Watchbill) -> None:
    found = json.loads(watchbill.here("stats", "--by", "queue", "--json").stdout)
    assert [(row["name"], row["succeeded"], row["failed"]) for row in found] == [("mail", 2, 1), ("other", 1, 0)]
    shown = watchbill.here("stats", "--by", "hour", "--since", "2h").stdout.splitlines()
    assert shown[0].split()[:3] == ["from", "succeeded", "skipped"]
    assert shown[1].split()[-2:] == ["not", "yet"]
    wrong = watchbill.here("stats", "--by", "week")
    assert (wrong.returncode, "--by week is invalid" in wrong.stderr) == (2, True)
    assert watchbill.here("stats", "--since", "2h").returncode == 2


def test_stats_rebuild_has_hours_counted_again(watchbill: Watchbill) -> None:
    done = watchbill.here("stats", "rebuild", "--since", "2h")
    assert (done.returncode, done.stdout.startswith("counting again from ")) == (0, True)
    assert watchbill.here("stats", "rebuild", "--since", "100d").returncode != 0


def test_top_in_a_pipe_prints_once(watchbill: Watchbill) -> None:
    shown = watchbill.here("top")
    assert (shown.returncode, shown.stderr) == (0, "")
    backlog, ended, _, names, mail, *_ = shown.stdout.splitlines()
    assert backlog.startswith("running 0, ready 2; sampled ")
    assert ended.endswith("runs per second; in the last hour 4 runs, 25.0% failed")
    assert names.split()[:3] == ["queue", "ready", "running"]
    assert mail.split()[:3] == ["mail", "2", "0"]
    assert "▁" not in shown.stdout
    found = json.loads(watchbill.here("top", "--json").stdout)
    assert (found["backlog"]["ready"], found["last_hour"]["failed"]) == (2, 1)
    assert [(queue["queue"], queue["ready"], queue["failed"]) for queue in found["queues"]] == [("mail", 2, 1)]
    assert [node["name"] for node in found["nodes"]] == ["a"]


@pytest.mark.parametrize("width", [80, 100, 160])
def test_top_in_a_terminal(watchbill: Watchbill, width: int) -> None:
    with terminal(watchbill.command("top"), watchbill.directory, watchbill.environment(), width) as shown:
        shown.wait_for("s: sort (ready)")
        shown.press("s")
        shown.wait_for("s: sort (running)")
        shown.press("\r")
        shown.wait_for("Why its jobs wait")
        shown.wait_for("  ready  ")
        shown.press("q")
        assert shown.wait() == 0
    assert shown.text.rstrip().endswith("\x1b[?25h\x1b[?1049l") or "\x1b[?1049l" in shown.text
    assert "Traceback" not in shown.text


def test_metrics_of_the_installation(watchbill: Watchbill) -> None:
    found = read_metrics(watchbill.here("metrics").stdout)
    assert found["watchbill_queue_jobs", 'queue="mail",state="ready"'] == 2
    assert found["watchbill_queue_ended_last_hour", 'queue="mail",outcome="failed"'] == 1
    assert found["watchbill_nodes", 'app="shop",state="active"'] == 1
    assert found["watchbill_queue_oldest_seconds", 'queue="mail"'] >= 0


def test_health_of_a_node_is_asked_in_the_database(watchbill: Watchbill, schema_database: str) -> None:
    assert watchbill.here("health", "ready", "--node", "a").returncode == 0
    assert watchbill.here("health", "live", "--node", "b").returncode == 1
    with psycopg.connect(schema_database, autocommit=True) as connection:
        connection.execute("SELECT watchbill.drain('a')")
    draining = watchbill.here("health", "ready", "--node", "a")
    assert (draining.returncode, draining.stderr) == (1, "a is draining\n")
    assert watchbill.here("health", "live", "--node", "a").returncode == 0


def test_health_without_a_port_says_what_to_do(watchbill: Watchbill) -> None:
    asked = watchbill.here("health", "live")
    assert (asked.returncode, "There is no health_port." in asked.stderr) == (2, True)
    nobody = watchbill.here("health", "live", WATCHBILL_HEALTH_PORT="1")
    assert (nobody.returncode, "no worker answers at 127.0.0.1, port 1" in nobody.stderr) == (1, True)

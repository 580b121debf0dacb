"""Alerts: episodes are raised once and cleared once, folded, silenced and handed to routes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.store.harness import Db, refused


def observe(db: Db, seconds: float = 0) -> None:
    """Lets time pass, and every part of the observer run once."""
    db.tick(seconds)
    db.change("UPDATE {schema}.chore_marks SET due_at = '2000-01-01Z' WHERE due_at < 'infinity'")
    for _ in range(20):
        db.value("_observe")
        if not [row for row in db.rows("chore_marks") if row.due_at.year == 2000 and row.chore != "observer"]:
            break
    assert [row.error for row in db.rows("chore_marks") if row.error] == []


def states(db: Db, *rules: str) -> dict[tuple[str, str], str]:
    """The open alerts of these rules. The partitions of the given clock's days are always missing."""
    found = {(row.rule, row.subject): row.state for row in db.call("alert_list")}
    return {key: state for key, state in found.items() if key[0] in rules or (not rules and key[0] != "partitions")}


def deliveries(db: Db) -> list[tuple[str, str]]:
    return sorted((row.event, row.route) for row in db.call("alert_delivery_list"))


def wait_in_queue(db: Db, count: int, queue: str = "mail") -> None:
    db.change("INSERT INTO {schema}.jobs (id, queue, type, tenant, run_at, created_at, payload) "
              "SELECT gen_random_uuid(), %s, 't', 'default', %s, %s, '{{}}' FROM generate_series(1, %s)",
              queue, db.now, db.now, count)  # fmt: skip


def test_an_alert_is_pending_then_raised_once_and_cleared_once(db: Db) -> None:
    db.node(queues=["mail"])
    db.value("set_alert_route", name="chat", kind="slack", target="env:HOOK", matcher={"rule": "backlog"})
    wait_in_queue(db, 1001)
    observe(db)
    assert states(db, "backlog") == {("backlog", "mail"): "pending"}
    observe(db, 299)
    assert states(db, "backlog") == {("backlog", "mail"): "pending"}
    observe(db, 1)
    assert states(db, "backlog") == {("backlog", "mail"): "firing"}
    observe(db, 60)
    assert deliveries(db) == [("raised", "chat")], "it is raised once"
    db.change("DELETE FROM {schema}.jobs WHERE id IN (SELECT id FROM {schema}.jobs LIMIT 50)")
    observe(db, 600)
    assert states(db, "backlog") == {("backlog", "mail"): "firing"}, "951 is above nine tenths of the threshold"
    db.change("DELETE FROM {schema}.jobs WHERE id IN (SELECT id FROM {schema}.jobs LIMIT 51)")
    observe(db, 10)
    observe(db, 119)
    assert states(db, "backlog") == {("backlog", "mail"): "firing"}, "it has not been low for two minutes"
    observe(db, 1)
    assert states(db, "backlog") == {}
    observe(db, 60)
    assert deliveries(db) == [("cleared", "chat"), ("raised", "chat")]
    (ended,) = db.call("alert_list", since=db.after(-3600), rule="backlog")
    assert (ended.state, ended.value, ended.above, ended.unit) == ("cleared", 951, 1000, "jobs")
    assert ended.help == "watchbill queues why mail"


def test_a_pending_alert_that_ends_is_forgotten(db: Db) -> None:
    db.node(queues=["mail"])
    wait_in_queue(db, 1001)
    observe(db)
    assert states(db, "backlog") == {("backlog", "mail"): "pending"}
    db.change("DELETE FROM {schema}.jobs WHERE id IN (SELECT id FROM {schema}.jobs LIMIT 1)")
    observe(db, 300)
    assert states(db, "backlog") == {}
    assert db.call("alert_list", since=db.after(-3600), rule="backlog") == []


def test_an_operator_changes_a_rule_for_all_and_for_one(db: Db) -> None:
    db.node(queues=["mail", "slow"])
    db.value("set_alert_rule", rule="backlog", above=5, lasting=timedelta(0))
    db.value("set_alert_rule", rule="backlog", subject="slow", above=20, severity="critical")
    wait_in_queue(db, 10, "mail")
    wait_in_queue(db, 10, "slow")
    observe(db)
    assert states(db, "backlog") == {("backlog", "mail"): "firing"}
    wait_in_queue(db, 11, "slow")
    observe(db, 60)
    assert states(db, "backlog") == {("backlog", "mail"): "firing", ("backlog", "slow"): "firing"}
    rules = {row.subject: row for row in db.call("alert_rule_list") if row.rule == "backlog"}
    assert [(rules[name].above, rules[name].lasting, rules[name].severity) for name in ("", "slow")] == [
        (5, timedelta(0), "warning"),
        (20, timedelta(0), "critical"),
    ]
    db.value("set_alert_rule", rule="backlog", is_enabled=False)
    observe(db)
    observe(db, 121)
    assert states(db, "backlog") == {}, "of a rule that is off nothing is raised"
    assert db.value("reset_alert_rule", rule="backlog", subject="slow")
    assert not db.value("reset_alert_rule", rule="backlog", subject="slow")


def test_many_subjects_are_one_alert(db: Db) -> None:
    queues = [f"q{number:02}" for number in range(25)]
    db.node(queues=queues)
    db.value("set_alert_rule", rule="backlog", above=1, lasting=timedelta(0))
    db.value("set_alert_route", name="chat", kind="slack", target="env:HOOK", matcher={"rule": "backlog"})
    for queue in queues[:3]:
        wait_in_queue(db, 2, queue)
    observe(db)
    assert len(states(db, "backlog")) == 3
    for queue in queues[3:]:
        wait_in_queue(db, 2, queue)
    observe(db, 10)
    assert states(db, "backlog") == {("backlog", "(many)"): "firing"}
    assert deliveries(db) == [("raised", "chat")] * 4, "three of single queues, and one of many"
    (many,) = db.call("alert_list", rule="backlog")
    assert (many.value, len(many.detail["subjects"])) == (25, 20)
    db.change("DELETE FROM {schema}.jobs WHERE queue > 'q11'")
    observe(db, 10)
    assert states(db, "backlog") == {("backlog", "(many)"): "firing"}, "twelve are still many"
    db.change("DELETE FROM {schema}.jobs WHERE queue > 'q01'")
    observe(db, 10)
    assert states(db, "backlog") == {
        ("backlog", "q00"): "firing", ("backlog", "q01"): "firing",
    }  # fmt: skip


def test_a_silence_keeps_an_alert_back_until_its_end(db: Db) -> None:
    db.node(queues=["mail"])
    db.value("set_alert_rule", rule="backlog", above=1, lasting=timedelta(0))
    db.value("set_alert_route", name="chat", kind="slack", target="env:HOOK", matcher={"rule": "backlog"})
    silence = db.value("add_silence", matcher={"subject": "m*l"}, lasting=timedelta(hours=1), reason="campaign")
    wait_in_queue(db, 2)
    observe(db)
    (alert,) = db.call("alert_list", rule="backlog")
    assert (alert.state, alert.is_silenced, deliveries(db)) == ("firing", True, [])
    assert db.value("end_silence", id=silence)
    assert not db.value("end_silence", id=silence)
    observe(db, 10)
    assert deliveries(db) == [("raised", "chat")]
    db.value("add_silence", matcher={"rule": "backlog"}, until=db.after(3600))
    db.change("DELETE FROM {schema}.jobs")
    observe(db, 10)
    observe(db, 121)
    assert deliveries(db) == [("cleared", "chat"), ("raised", "chat")], "who has heard of it hears its end"
    assert [row.matcher for row in db.call("silence_list")] == [{"rule": "backlog"}]
    assert len(db.call("silence_list", ended=True)) == 2


def test_acts_of_an_operator_silence_what_follows_for_ten_minutes(db: Db) -> None:
    db.node(queues=["mail"], name="one")
    db.value("set_alert_rule", rule="backlog", above=1, lasting=timedelta(0))
    db.value("set_alert_route", name="chat", kind="slack", target="env:HOOK", matcher={"rule": "backlog"})
    db.value("pause", queue="mail")
    db.value("resume", queue="mail")
    wait_in_queue(db, 2)
    observe(db, 60)
    (alert,) = db.call("alert_list", rule="backlog")
    assert (alert.state, alert.is_silenced) == ("firing", True)
    observe(db, 541)
    assert deliveries(db) == [("raised", "chat")]
    db.value("drain", name="one")
    (silence,) = db.call("silence_list")
    assert "no_nodes" in silence.matcher["rule"]
    assert silence.reason == "node one drains"


@pytest.mark.parametrize(
    ("function", "arguments", "error"),
    [
        ("set_alert_rule", {"rule": "backlok", "above": 1}, "no alert rule 'backlok'"),
        ("set_alert_rule", {"rule": "unserved", "above": 1}, "asks yes or no"),
        ("set_alert_rule", {"rule": "backlog"}, "nothing to change"),
        ("set_alert_rule", {"rule": "backlog", "severity": "bad"}, "severity 'bad' is invalid"),
        ("set_alert_rule", {"rule": "backlog", "lasting": timedelta(-1)}, "lasting is invalid"),
        ("set_alert_rule", {"rule": "backlog", "above": float("nan")}, "above is invalid"),
        ("set_alert_route", {"name": "a b", "kind": "log"}, "name is invalid"),
        ("set_alert_route", {"name": "a", "kind": "pager"}, "kind is invalid"),
        ("set_alert_route", {"name": "a", "kind": "slack", "target": "https://hooks.example/x"}, "target is invalid"),
        ("set_alert_route", {"name": "a", "kind": "command", "target": "/bin/rm -rf"}, "target is invalid"),
        ("set_alert_route", {"name": "a", "kind": "mail", "target": "ann"}, "target is invalid"),
        ("set_alert_route", {"name": "a", "kind": "webhook", "target": "https://x", "secret": "s"}, "secret is inv"),
        ("set_alert_route", {"name": "a", "kind": "log", "matcher": {"rul": "x"}}, "no field 'rul'"),
        ("set_alert_route", {"name": "a", "kind": "log", "matcher": {"rule": [1]}}, "'rule' has no text"),
        ("test_alert_route", {"name": "a"}, "no route 'a'"),
        ("add_silence", {"matcher": {}, "lasting": timedelta(0)}, "end of the silence"),
    ],
)
def test_what_is_invalid_is_refused(db: Db, function: str, arguments: dict[str, object], error: str) -> None:
    with refused("WB003", error):
        db.call(function, **arguments)

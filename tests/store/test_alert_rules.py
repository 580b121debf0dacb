"""Each rule of alerts is made to happen, and to be well again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import psycopg
import pytest

from tests.store.flow import declare_limit, enqueue
from tests.store.harness import Db
from tests.store.test_alerts import wait_in_queue
from tests.waiting import until

Act = Callable[[Db], object]


class Case(NamedTuple):
    """What makes an alert of this rule about this subject, and what ends it; `above` is a lower threshold."""

    rule: str
    subject: str
    cause: Act
    cure: Act | None = None
    above: float | None = None


def observe(db: Db, seconds: float = 0) -> None:
    """Lets time pass, and every part of the observer run once."""
    db.tick(seconds)
    db.change("UPDATE {schema}.chore_marks SET due_at = '2000-01-01Z' "
              "WHERE due_at < 'infinity' AND chore <> 'verify' AND NOT starts_with(chore, 'prune ')")  # fmt: skip
    for _ in range(20):
        if db.value("_observe"):
            break
    assert db.execute("SELECT error FROM watchbill.chore_marks WHERE error IS NOT NULL AND chore <> 'verify'") == []


def add_rollup(db: Db, **figures: int) -> None:
    counts = dict.fromkeys(("succeeded", "failed", "dead", "wait_seconds"), 0) | figures
    for grain, dimension, name in (("ten_minutes", "type", "send"), ("minute", "queue", "mail")):
        db.change(
            "INSERT INTO {schema}.rollups (grain, dimension, at, name, succeeded, skipped, failed, timed_out, lost, "
            "snoozed, dead, canceled, run_seconds, wait_seconds) "
            "VALUES (%s, %s, %s, %s, %s, 0, %s, 0, 0, 0, %s, 0, 0, %s)",
            grain, dimension, db.after(-120), name, *counts.values(),
        )  # fmt: skip


def forget_rollups(db: Db) -> None:
    db.change("DELETE FROM {schema}.rollups")


def forget_jobs(db: Db) -> None:
    db.change("DELETE FROM {schema}.jobs")


def wait_for_eleven_minutes(db: Db) -> None:
    db.node(queues=["mail"])
    wait_in_queue(db, 1)
    db.tick(660)


def lose_a_node(db: Db) -> None:
    db.lose(db.node("one", app="shop"))


def start_a_node(db: Db) -> None:
    db.tick(1)
    db.node("two", app="shop")


def skew(db: Db) -> None:
    db.value("_report_clock_skew", epoch=db.node("one"), seconds=-9)


def serve_something_else(db: Db) -> None:
    db.node(queues=["other"])
    wait_in_queue(db, 1)


def meet_unknown_type(db: Db) -> None:
    db.node()
    db.change("INSERT INTO {schema}.unsupported_types VALUES ('send', 1, %s)", db.now)


def need_labels(db: Db) -> None:
    db.node(queues=["mail"])
    db.enqueue(queue="mail", runs_on={"gpu": "a100"})


def run_for_long(db: Db) -> None:
    epoch = db.node()
    job = db.enqueue(id="01890a5d-ac96-774b-bcce-b302099a8057")
    (row,) = db.claim(epoch)
    db.change("INSERT INTO {schema}.runs VALUES (%s, %s, %s, %s, %s)", job, row.fence, epoch, db.now, db.now)
    db.tick(3700)


def end_runs(db: Db) -> None:
    db.change("DELETE FROM {schema}.runs")


def kill_two_nodes(db: Db) -> None:
    db.enqueue("send")
    for in_quarantine in (False, True):
        db.make_ready()
        epoch = db.node()
        assert db.claim(epoch, alone=in_quarantine)
        db.lose(epoch)


def lock_jobs(db: Db) -> None:
    db.value("_note_alert_event", rule="locked_jobs", subject="(all)", value=2, t=db.now)


def run_a_job(db: Db) -> None:
    epoch = db.node()
    db.enqueue()
    db.claim(epoch)


def fill_quota(db: Db) -> None:
    db.value("set_tenant", tenant="acme", quotas={"unfinished": 1})
    db.enqueue(tenant="acme")
    db.value("refresh_quotas")


def raise_quota(db: Db) -> None:
    db.value("set_tenant", tenant="acme", quotas={"unfinished": 100})


def fill_limit(db: Db) -> None:
    declare_limit(db, "api", 1)
    for _ in range(2):
        enqueue(db, "key:api")
    db.claim(db.node())


def keep_ordered_key(db: Db) -> None:
    declare_limit(db, "order:task", 1, when_dead="pause")
    enqueue(db, order="x", max_attempts=1)
    epoch = db.node()
    db.run(epoch, "failed")
    enqueue(db, order="x")
    db.claim(epoch)


def add_schedule(db: Db) -> int:
    db.value("add_schedule", name="nightly", pattern="0 * * * *", type="send")
    (row,) = db.rows("schedules")
    return int(row.id)


def be_overdue(db: Db) -> None:
    db.change("INSERT INTO {schema}.slots (schedule_id, slot, fired_at, due_by, overdue_at) "
              "VALUES (%s, %s, %s, %s, %s)",
              add_schedule(db), db.now, db.now, db.now, db.now)  # fmt: skip


def be_late(db: Db) -> None:
    add_schedule(db)
    db.tick(3700)


def be_orphaned(db: Db) -> None:
    add_schedule(db)
    db.change("UPDATE {schema}.timers SET held_slot = %s", db.now)


def fail_three_times(db: Db) -> None:
    schedule = add_schedule(db)
    for hours in (1, 2, 3):
        db.change("INSERT INTO {schema}.slots (schedule_id, slot, fired_at, outcome) VALUES (%s, %s, %s, 'failed')",
                  schedule, db.after(-3600 * hours), db.now)  # fmt: skip
    db.change("INSERT INTO {schema}.failure_groups VALUES (1, 'default', 'send', 'E', 'm', gen_random_uuid(), "
              "%s, %s, 3, 3)", db.now, db.now)  # fmt: skip


def make_group(db: Db) -> int:
    db.change(
        "INSERT INTO {schema}.token_groups (name, total, next_pin, created_at) VALUES ('cells', 1, 1, %s)", db.now
    )
    return db.node("one")


def leave_a_token(db: Db) -> None:
    make_group(db)
    db.change("INSERT INTO {schema}.tokens (token_group, token, epoch, fence) VALUES ('cells', 0, 0, 1)")


def have_no_leader(db: Db) -> None:
    db.change("INSERT INTO {schema}.candidates VALUES (%s, 'cells')", make_group(db))


def pin_to_nothing(db: Db) -> None:
    epoch = make_group(db)
    db.change("INSERT INTO {schema}.members (token_group, epoch, joined_at) VALUES ('cells', %s, %s)", epoch, db.now)
    db.change("INSERT INTO {schema}.tokens (token_group, token, epoch, fence) "
              "VALUES ('cells', 0, 0, 1), ('cells', 1, 0, 1)")  # fmt: skip
    db.change("INSERT INTO {schema}.pins (token_group, key, rank, token, pattern, created_by, created_at) "
              "VALUES ('cells', 'k', 1, 1, 'gone', 'ann', %s)", db.now)  # fmt: skip


def rebalance_often(db: Db) -> None:
    make_group(db)
    db.change("INSERT INTO {schema}.rebalances (token_group, at, reason, nodes_before, nodes_after, moved, version, "
              "duration) SELECT 'cells', %s, 'join', '{{}}', '{{}}', 1, 1, '0' FROM generate_series(1, 6)",
              db.now)  # fmt: skip


def keep_days(db: Db) -> None:
    """The given clock is years after the days of which there are partitions."""
    db.change("INSERT INTO {schema}.chore_marks (chore, due_at, pace) "
              "VALUES ('prune finished_succeeded', 'infinity', 86400)")  # fmt: skip


def finish_a_job(db: Db) -> None:
    """On a day without a partition."""
    epoch = db.node()
    db.enqueue()
    db.run(epoch, "succeeded")


def damage(db: Db) -> None:
    db.change("INSERT INTO {schema}.chore_marks (chore, due_at, error) VALUES ('verify', 'infinity', '1 finding')")


def mend(db: Db) -> None:
    db.change("DELETE FROM {schema}.chore_marks WHERE chore = 'verify'")


def disable_endpoint(db: Db) -> None:
    db.value("set_endpoint", name="crm", definition={"base_url": "https://crm.example"}, tenant="acme")
    db.change("UPDATE {schema}.connector_endpoints SET disabled_at = %s, "
              "disabled_reason = ({schema}._endpoint_failure_reasons())[1]", db.now)  # fmt: skip


def forget_a_pause(db: Db) -> None:
    db.value("pause", queue="mail")
    db.tick(86_500)


def change(statement: str) -> Act:
    return lambda db: db.change(statement)


CASES = [
    Case("failure_rate", "send", lambda db: add_rollup(db, succeeded=10, failed=11), forget_rollups),
    Case("dead_spike", "send", lambda db: add_rollup(db, dead=101), forget_rollups),
    Case("slow_pickup", "mail", lambda db: add_rollup(db, succeeded=1, wait_seconds=9), forget_rollups, above=5),
    Case("oldest", "mail", wait_for_eleven_minutes, forget_jobs),
    Case("no_nodes", "(all)", lambda db: wait_in_queue(db, 1), forget_jobs),
    Case("node_down", "one", lose_a_node, start_a_node),
    Case("clock_skew", "one", skew, lambda db: db.tick(61)),
    Case("unserved", "mail", serve_something_else, lambda db: db.node(queues=["mail"])),
    Case("unsupported", "send", meet_unknown_type, change("DELETE FROM {schema}.unsupported_types")),
    Case("unmatched", "mail", need_labels, forget_jobs),
    Case("slow_job", "01890a5d-ac96-774b-bcce-b302099a8057", run_for_long, end_runs),
    Case("poison", "send", kill_two_nodes, lambda db: db.tick(3601)),
    Case("locked_jobs", "(all)", lock_jobs, lambda db: db.tick(61)),
    Case("heartbeat_budget", "(all)", run_a_job, None, above=1),
    Case("quota", "acme", fill_quota, raise_quota),
    Case("limit_saturated", "api", fill_limit, forget_jobs),
    Case("order_stuck", "order:task:x", keep_ordered_key, lambda db: db.value("clear_limit", name="order:task:x")),
    Case("schedule_overdue", "nightly", be_overdue, change("UPDATE {schema}.slots SET finished_at = fired_at")),
    Case("schedule_late", "nightly", be_late, lambda db: db.value("tick")),
    Case("schedule_orphaned", "nightly", be_orphaned, change("UPDATE {schema}.timers SET held_slot = NULL")),
    Case("schedule_failing", "nightly", fail_three_times, change("UPDATE {schema}.slots SET outcome = 'succeeded'")),
    Case("tokens_unowned", "cells", leave_a_token, change("DELETE FROM {schema}.tokens")),
    Case("no_leader", "cells", have_no_leader, change("DELETE FROM {schema}.candidates")),
    Case("pin_unmatched", "cells", pin_to_nothing, change("UPDATE {schema}.nodes SET name = 'gone'")),
    Case("rebalancing", "cells", rebalance_often, lambda db: db.tick(3601)),
    Case("partitions", "attempts", lambda db: None),
    Case("retention", "finished_succeeded", keep_days, change("DELETE FROM {schema}.chore_marks WHERE pace = 86400")),
    Case("default_rows", "finished_succeeded", finish_a_job, change("DELETE FROM {schema}.finished_jobs")),
    Case("forgotten_pause", "queue mail", forget_a_pause,
         lambda db: db.value("resume", queue="mail")),
    Case("endpoint_disabled", "crm", disable_endpoint, change("DELETE FROM {schema}.connector_endpoints")),
    Case("verify", "(all)", damage, mend),
]  # fmt: skip
TESTED_APART = {"backlog", "chores", "old_transaction"}  # test_alerts.py has the backlog


def find_state(db: Db, case: Case) -> str | None:
    """The state of the alert, if it is open."""
    found = [row for row in db.call("alert_list", rule=case.rule) if row.subject == case.subject]
    return found[0].state if found else None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_a_rule_is_raised_once_and_cleared_once(db: Db, case: Case) -> None:
    db.value("set_alert_rule", rule=case.rule, lasting=timedelta(0), above=case.above)
    db.value("set_alert_route", name="log", kind="log", matcher={"rule": case.rule, "subject": case.subject})
    case.cause(db)
    observe(db)
    observe(db, 1)
    assert find_state(db, case) == "firing"
    (alert,) = [row for row in db.call("alert_list", rule=case.rule) if row.subject == case.subject]
    assert alert.reason
    if case.cure is not None:
        case.cure(db)
        observe(db, 1)
        if find_state(db, case) is not None:  # a value has to be low for two minutes
            observe(db, 121)
        assert find_state(db, case) is None
    expected = ["raised"] if case.cure is None else ["cleared", "raised"]
    assert sorted(row.event for row in db.call("alert_delivery_list", route="log")) == expected


def test_a_chore_that_fails_or_is_late_is_an_alert(db: Db) -> None:
    """Its own evaluation is not one of them."""
    db.value("set_alert_rule", rule="chores", lasting=timedelta(0))
    observe(db)
    db.change("UPDATE {schema}.chore_marks SET error = 'boom', due_at = 'infinity' WHERE chore = 'history'")
    db.change("UPDATE {schema}.chore_marks SET due_at = %s WHERE chore = 'samples'", db.after(-200))
    db.value("_evaluate_alerts", t=db.now)
    found = {row.subject: row.reason for row in db.call("alert_list", rule="chores")}
    assert found["history"] == "the chore history fails: boom"
    assert "samples" in found


@pytest.mark.long
def test_an_old_transaction_is_an_alert_until_it_ends(own_db: Db) -> None:
    """It is looked at from its tenth second on, on the server's clock."""
    db = own_db
    db.value("set_alert_rule", rule="old_transaction", lasting=timedelta(0), above=1)
    other = db.session()
    other.begin()
    other.execute("SELECT pg_current_xact_id()")

    def find() -> list[Any]:
        db.value("_evaluate_alerts", t=db.now)
        return db.call("alert_list", rule="old_transaction")

    until(lambda: [row for row in find() if row.state == "firing"])
    (alert,) = find()
    assert alert.subject == str(other.connection.info.backend_pid)
    other.rollback()
    db.tick(1)
    find()
    db.tick(121)
    assert find() == []


def test_all_rules_are_here(db: Db) -> None:
    rules = {row.rule for row in db.call("alert_rule_list")}
    assert rules - {case.rule for case in CASES} == TESTED_APART


KILLER = """
CREATE FUNCTION public.die_in_time() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  step int := coalesce(nullif(current_setting('test.step', true), ''), '0')::int + 1;
BEGIN
  PERFORM set_config('test.step', step::text, false);
  IF step::text = current_setting('test.dies_at', true) THEN
    PERFORM pg_terminate_backend(pg_backend_pid());
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER die AFTER INSERT OR UPDATE OR DELETE ON watchbill.alerts
FOR EACH STATEMENT EXECUTE FUNCTION public.die_in_time();
CREATE TRIGGER die AFTER INSERT OR UPDATE OR DELETE ON watchbill.alert_deliveries
FOR EACH STATEMENT EXECUTE FUNCTION public.die_in_time()"""


def test_an_evaluator_that_is_killed_after_any_statement_repeats_nothing_and_loses_nothing(own_db: Db) -> None:
    db = own_db
    db.connection.execute(KILLER)
    db.node("one", queues=["other"])
    db.value("set_alert_rule", rule="unserved", lasting=timedelta(0))
    db.value("set_alert_route", name="log", kind="log", matcher={"rule": "unserved"})
    kills = 0
    acts: tuple[Act, ...] = (lambda db: wait_in_queue(db, 1), forget_jobs)
    for act in acts:
        act(db)
        step = 0
        while True:
            db.tick(1)
            step += 1
            dying = db.session()
            dying.given_url = True
            dying.configure(**{"test.dies_at": str(step)})
            try:
                dying.value("_sample_backlog", t=db.now)
                dying.execute("UPDATE watchbill.chore_marks SET last_at = %s WHERE chore = 'samples'", (db.now,))
                dying.value("_evaluate_alerts", t=db.now)
            except psycopg.OperationalError:
                kills += 1
                continue
            break
    assert kills >= 10
    events = sorted(row.event for row in db.call("alert_delivery_list", route="log"))
    assert events == ["cleared", "raised"]

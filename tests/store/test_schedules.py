"""Writing schedules, by the verbs and by plain SQL alike: nothing wrong gets in, and the rest takes effect at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.store.harness import T0, Db, End, refused
from tests.store.test_tick import add, at, finish_all, jobs, slots, tick_at, unblock


def flow(*jobs: dict[str, Any], ends: Any = ()) -> dict[str, Any]:
    return {"type": "watchbill.flow", "payload": {"jobs": [{"type": "step"} | job for job in jobs], "ends": ends}}


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"name": ""}, "WB003", "name must be a text"),
    ({"pattern": "61 * * * *"}, "WB010", "minute: '61' is not in 0 to 59"),
    ({"pattern": "* * * * *", "tz": "Mars/Base"}, "WB010", "zone: 'Mars/Base'"),
    ({"tz": "Mars/Base"}, "WB010", "zone: 'Mars/Base'"),
    ({"pattern": "* * * * *", "every": "1 hour"}, "WB003", "'s' is invalid: give one of pattern, every and at"),
    ({"dst": "never"}, "WB003", "dst must be default, skip, once or both, not 'never'"),
    ({"every": "0.5 s"}, "WB003", "every must be between a second"),
    ({"every": "1 month"}, "WB003", "every must not have months"),
    ({"every": "bla"}, "WB003", "every: invalid input syntax for type interval"),
    ({"at": "infinity"}, "WB003", "at must be between 0001-01-02 and 9999-12-30"),
    ({"at": "4000-01-01 BC"}, "WB003", "at must be between 0001-01-02 and 9999-12-30"),
    ({"start": "0001-01-01 00:00Z"}, "WB003", "start must be between 0001-01-02 and 9999-12-30"),
    ({"end": "10000-01-01"}, "WB003", "end must be between 0001-01-02 and 9999-12-30"),
    ({"start": str(at(12)), "end": str(at(11))}, "WB003", "end .* must not be before start"),
    ({"at": str(at(12)), "end": str(at(11))}, "WB003", "at .* must not be after end"),
    ({"max_runs": 0}, "WB003", "max_runs must be 1 or more"),
    ({"catch_up": 0}, "WB003", "catch_up must be between 1 and 10000"),
    ({"missed": "never"}, "WB003", "missed must be skip, once or catch_up, not 'never'"),
    ({"overlap": "never"}, "WB003", "overlap must be skip, queue, cancel_previous or allow, not 'never'"),
    ({"jitter": "-1 s"}, "WB003", "jitter must be between 0"),
    ({"jitter": "1 year"}, "WB003", "jitter must be between 0 and 365 days"),
    ({"grace": "-1 s"}, "WB003", "grace must be between 0"),
    ({"deadline": "0 s"}, "WB003", "deadline must be more than 0"),
    ({"deadline": "366 days"}, "WB003", "deadline must be more than 0 and at most 365 days"),
    ({"priority": 40000}, "WB003", "priority must be between"),
    ({"timeout": "0 s"}, "WB003", "timeout must be more than 0"),
    ({"max_attempts": 0}, "WB003", "max_attempts must be between"),
    ({"retry": {"kind": "magic"}}, "WB003", "retry policy .* is invalid"),
    ({"payload": [1]}, "WB003", "payload must be a JSON object"),
    ({"context": "x"}, "WB003", "context must be a JSON object"),
    ({"context": {"x": "y" * 16000}}, "WB003", "context must have at most 16000 bytes as text"),
    ({"description": "x" * 4001}, "WB003", "description must have at most 4000 characters"),
    ({"created_by": "x" * 501}, "WB003", "created_by must have at most 500 characters"),
    ({"tags": [""]}, "WB003", "tags must be texts"),
    ({"command": "SELECT 1"}, "WB003", "give a type or a command, not both"),
    ({"type": None, "command": "SELEC 1"}, "WB003", 'its command does not parse: syntax error at or near "SELEC"'),
    ({"type": None, "command": "SELECT 1; SELECT (2"}, "WB003", "its command does not parse"),
    ({"type": None, "command": " ; "}, "WB003", "its command is empty"),
    ({"type": None, "command": "Begin; SELECT 1"}, "WB003", "its command begins or ends a transaction"),
    ({"type": None, "command": "start transaction"}, "WB003", "its command begins or ends a transaction"),
    ({"type": None, "command": "SELECT 1; COMMIT WORK;\n"}, "WB003", "its command begins or ends a transaction"),
    ({"type": None, "command": "SELECT 1", "role": "nobody_knows"}, "WB003", "role 'nobody_knows' does not exist"),
    ({"role": "postgres"}, "WB003", "a role needs a command"),
    ({"colour": "red"}, "WB003", "'colour' is not a field"),
    (flow({"depends_on": [1]}, {"depends_on": [0]}), "WB003", "jobs wait for each other: step"),
    (flow({"depends_on": [0]}), "WB003", "jobs wait for each other: step"),
    (flow({"depends_on": [7]}), "WB003", "depends_on names position 7"),
    (flow({}, ends=[1]), "WB003", "ends of a chain must be positions among its jobs, from 0, not 1"),
    (flow({}, ends=["x"]), "WB003", "ends of a chain must be positions among its jobs"),
    (flow({}, ends=None), "WB003", "ends of a chain must be positions among its jobs, from 0"),
    (flow(), "WB003", "jobs of a chain must be a JSON array of at least one"),
    (flow({"type": None}), "WB003", "jobs of a chain must be .* each with a type"),
    ({"type": "watchbill.flow", "payload": {}}, "WB003", "jobs of a chain must be"),
    (flow({}, {"colour": "red"}), "WB003", "position 1 of its chain: 'colour' is not a field of a job"),
    (flow({"priority": "high"}), "WB003", 'position 0 of its chain: invalid input syntax for type integer: "high"'),
    (flow({"priority": 40000}), "WB003", "position 0 of its chain: priority must be between -32768 and 32767"),
    (flow({"max_attempts": 0}), "WB003", "position 0 of its chain: max_attempts must be between 1 and 32767"),
    (flow({"payload": [1]}), "WB003", "position 0 of its chain: payload must be a JSON object"),
    (flow({"retry": {"kind": "magic"}}), "WB003", "position 0 of its chain: retry policy .* is invalid"),
    (flow({"timeout": "soon"}), "WB003", "position 0 of its chain: invalid input syntax for type interval"),
    (flow({"run_at": "2200-13-01"}), "WB003", "position 0 of its chain: date/time field value out of range"),
    (flow({"limit_keys": "crm"}), "WB003", "position 0 of its chain: .*limit_keys must be an array of texts"),
    (flow({"limit_keys": ["crm:{who}"]}), "WB003", "position 0 of its chain: .*limit_keys"),
    (flow({"ordered_by": "{who}"}), "WB003", "position 0 of its chain: .*ordered_by"),
    (flow({"route_by": "{who}"}), "WB003", "position 0 of its chain: .*route_by"),
    (flow({"unique_by": "{who}"}), "WB003", "position 0 of its chain: .*unique_by"),
    (flow({"run_if": "never"}), "WB003", "position 0 of its chain: run_if must be"),
    (flow({}, {"depends_on": ["x"]}), "WB003", 'position 1 of its chain: invalid input syntax for type uuid: "x"'),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "sqlstate", "message"), BAD, ids=[str(rule)[:100] for rule, *_ in BAD])
def test_invalid_schedule_is_refused_and_changes_nothing(
    db: Db, rule: dict[str, Any], sqlstate: str, message: str
) -> None:
    with refused(sqlstate, message):
        db.value("add_schedule_from", definition={"name": "s", "type": "task"} | rule)
    if "name" not in rule:
        add(db)
        before = db.rows("schedules"), db.rows("timers")
        changes = {"pattern": None} | rule if rule.keys() & {"at", "every"} else rule
        with refused(sqlstate, message):
            db.value("update_schedule", name="s", changes=changes)
        assert (db.rows("schedules"), db.rows("timers")) == before


def test_definition_that_is_not_an_object_is_refused(db: Db) -> None:
    with refused("WB003", "definition is invalid: it must be a JSON object"):
        db.value("add_schedule_from", definition=[])


def test_schedule_name_is_unique_per_tenant(db: Db) -> None:
    add(db)
    add(db, tenant="other")
    with refused("WB009", "schedule 's' exists already"):
        add(db)
    other = db.session()
    other.begin()
    add(other, "t")
    late = db.session().start("add_schedule", name="t").blocked()
    other.commit()
    with refused("WB009"):
        late.rows()


def test_a_command_is_parsed_and_not_run(db: Db) -> None:
    db.execute("CREATE TABLE public.kept (n int)")
    add(db, "drop", command="DROP TABLE public.kept; SELECT 1")
    add(db, "later", command="INSERT INTO not_there_yet VALUES (1)")
    add(db, "apart", command="VACUUM public.kept")
    add(db, "looks so", command="SELECT '; COMMIT' AS begin")
    assert db.execute("SELECT * FROM public.kept") == []
    db.execute("DROP TABLE public.kept")


def test_schedule_role_must_be_a_role_of_the_caller(db: Db) -> None:
    db.execute("DO $$ BEGIN CREATE ROLE clerk; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    db.execute("GRANT USAGE ON SCHEMA watchbill TO clerk")
    db.execute("GRANT ALL ON ALL TABLES IN SCHEMA watchbill TO clerk")
    db.execute("GRANT ALL ON ALL SEQUENCES IN SCHEMA watchbill TO clerk")
    db.execute("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA watchbill TO clerk")
    clerk = db.session(db.url)
    clerk.execute("SET ROLE clerk")
    add(clerk, "own", command="SELECT 1", role="clerk", now=None)
    with refused("WB003", "you must be a member of role 'postgres'"):
        add(clerk, "other", command="SELECT 1", role="postgres", now=None)


def test_plain_sql_on_schedules_takes_effect_like_the_verbs(db: Db) -> None:
    db.change(
        "INSERT INTO {schema}.schedules (name, pattern, type, created_at) VALUES ('s', '0 * * * *', 'task', %s)", T0
    )
    assert tick_at(db, at(10)).fired == 1
    db.change("UPDATE {schema}.schedules SET pattern = '30 * * * *', updated_at = %s", at(10))
    assert db.row("tick").next_at == at(10, 30)
    with refused("WB010"):
        db.change("UPDATE {schema}.schedules SET pattern = 'bla'")
    with refused("WB003", "its id cannot be changed"):
        db.change("UPDATE {schema}.schedules SET id = id + 1")
    db.change("DELETE FROM {schema}.schedules")
    assert db.row("tick").next_at is None
    assert len(slots(db)) == 1


@pytest.mark.parametrize(
    "change",
    ["created_at = '-infinity'", "created_at = '0001-01-01 BC'", "updated_at = 'infinity'"],
)
def test_plain_sql_cannot_write_a_time_that_clients_cannot_read(db: Db, change: str) -> None:
    """Otherwise no client can list the schedules, or read the events of a tick."""
    add(db, every="1 hour")
    with refused("WB003", f"{change[:10]} must be between 0001-01-02 and 9999-12-30"):
        db.change(f"UPDATE {{schema}}.schedules SET {change}")


def test_plain_sql_cannot_write_a_declaration_that_is_not_an_object(db: Db) -> None:
    add(db)
    with refused("WB003", "declared_definition must be a JSON object"):
        db.change("UPDATE {schema}.schedules SET declared_definition = '5'")


def test_a_year_of_jitter_and_deadline_is_accepted(db: Db) -> None:
    add(db, jitter="365 days", deadline="365 days", timeout="365 days")


def test_schedule_has_no_slot_after_the_last_time_that_clients_can_read(db: Db) -> None:
    add(db, every="36500 days", start="9999-01-01", created_by="x")
    db.change("UPDATE {schema}.schedules SET updated_at = '9999-06-01', every = '36499 days'")
    assert [row.next_run for row in db.call("schedule_list")] == [None]


def test_insert_without_created_at_uses_the_clock(db: Db) -> None:
    db.change("INSERT INTO {schema}.schedules (name, every, type) VALUES ('s', '1 hour', 'task')")
    (row,) = db.execute(
        "SELECT next_run > now() AND next_run <= now() + interval '1 hour' AS soon FROM watchbill.timers"
    )
    assert row.soon


def test_catch_up_defaults_to_overlap_queue(db: Db) -> None:
    add(db, "a", missed="catch_up")
    add(db, "b", missed="catch_up", overlap="skip")
    add(db, "c")
    assert [row.overlap for row in db.call("schedule_list")] == ["queue", "skip", "skip"]


def test_update_with_null_restores_the_default(db: Db) -> None:
    add(db, priority=5, tz="Europe/Paris", grace=timedelta(hours=1), tags=["x"])
    assert db.value("update_schedule", name="s", changes={"priority": None, "tz": None, "grace": None, "tags": None})
    row = db.row("schedule_by_name", name="s")
    assert (row.priority, row.tz, row.grace, row.tags) == (0, "UTC", None, [])
    assert not db.value("update_schedule", name="other", changes={})
    add(db, "t")
    with refused("WB009"):
        db.value("update_schedule", name="t", changes={"name": "s"})


def test_equal_patterns_are_compiled_once(db: Db) -> None:
    for n in range(5):
        add(db, str(n), pattern="17 * * * *")
    assert len({row.pattern_id for row in db.rows("schedules")}) == 1


def test_rearm_timers_corrects_timers_after_a_zone_change(db: Db) -> None:
    add(db, "zone", pattern="0 9 * * *", tz="Europe/Paris")
    add(db, "chained", pattern="0 9 * * MON E0D", tz="Europe/Paris")
    add(db, "fixed", pattern="0 9 * * *", tz="+05:00")
    right = db.rows("timers")
    assert db.value("_recompute_timers") == 0
    db.change("UPDATE {schema}.timers SET next_run = next_run + interval '1 hour'")
    assert db.value("_recompute_timers") == 2
    assert db.rows("timers")[:2] == right[:2]


# -- by hand


def test_run_schedule_makes_a_job_without_a_slot(db: Db) -> None:
    schedule = add(db, payload={"a": 1})
    db.call("disable_schedule", name="s")
    job = db.value("run_schedule", name="s", payload={"a": 2})
    again = db.value("run_schedule", name="s")
    assert [(j.schedule_id, j.slot, j.payload) for j in jobs(db)] == [
        (schedule, None, {"a": 2}),
        (schedule, None, {"a": 1}),
    ]
    assert [(r.kind, r.job_id, r.outcome) for r in db.rows("slots", "slot")] == [
        ("hand", job, None),
        ("hand", again, None),
    ]
    finish_all(db)
    assert [(r.kind, r.outcome) for r in db.rows("slots")] == [("hand", "succeeded"), ("hand", "succeeded")]
    assert db.row("schedule_by_name", name="s").runs == 2


def test_run_schedule_refuses_invalid_payloads(db: Db) -> None:
    assert db.value("run_schedule", name="nobody") is None
    add(db, "sql", command="SELECT 1")
    with refused("WB003", "payload is invalid: schedule .* has no task to take it"):
        db.value("run_schedule", name="sql", payload={"a": 1})
    add(db)
    with refused("WB003", "payload is invalid: it must be a JSON object"):
        db.value("run_schedule", name="s", payload=[1])


# -- what became of it


@pytest.mark.parametrize(
    ("end", "outcome", "error"),
    [
        ({"outcome": "succeeded"}, "succeeded", None),
        ({"outcome": "skipped", "error": {"message": "holiday"}}, "skipped", "holiday"),
        ({"outcome": "failed", "error": {"kind": "permanent", "message": "no"}}, "failed", "no"),
        ({"outcome": "timed_out", "error": {"kind": "permanent", "message": "slow"}}, "timed_out", "slow"),
        ({"outcome": "canceled"}, "canceled", "canceled"),
    ],
)
def test_ending_of_the_job_sets_the_outcome_of_the_slot(
    db: Db, end: dict[str, Any], outcome: str, error: str | None
) -> None:
    add(db)
    tick_at(db, at(10))
    epoch = db.node("worker")
    job = db.claim_one(epoch)
    if outcome == "canceled":
        db.value("cancel", id=job.id)
    db.now = at(10, 1)
    db.settle(epoch, End(job, age=30.0, **end))
    (row,) = db.call("slot_list", name="s")
    assert (row.outcome, row.error, row.node) == (outcome, error, "worker")
    assert (row.started_at, row.finished_at) == (at(10, 1) - timedelta(seconds=30), at(10, 1))
    assert row.duration == timedelta(seconds=30)


def test_settling_several_successes_closes_their_slots(db: Db) -> None:
    for n in range(3):
        add(db, str(n))
    tick_at(db, at(10))
    db.enqueue()
    epoch = db.node()
    held = db.claim(epoch)
    db.call("settle", epoch=epoch, ids=[j.id for j in held], fences=[j.fence for j in held])
    assert [outcome for _, outcome, _ in slots(db)] == ["succeeded"] * 3


def test_slot_stays_open_during_retries_and_closes_at_the_last_loss(db: Db) -> None:
    add(db)
    tick_at(db, at(10))
    assert db.run(db.node(), "failed") == "failed"
    assert slots(db) == [(at(10), None, 1)]
    for _ in range(3):
        db.make_ready()
        epoch = db.node()
        assert db.claim(epoch) or db.claim(epoch, alone=True)
        db.lose(epoch)
    assert slots(db) == [(at(10), "lost", 1)]


def test_reschedule_of_a_job_reopens_its_slot(db: Db) -> None:
    add(db)
    tick_at(db, at(10))
    job = jobs(db)[0].id
    db.run(db.node(), "failed", error={"kind": "permanent", "message": "no"})
    db.call("reschedule", id=job)
    assert slots(db) == [(at(10), None, 1)]
    finish_all(db)
    assert slots(db) == [(at(10), "succeeded", 1)]


def test_canceling_a_waiting_job_closes_its_slot(db: Db) -> None:
    add(db)
    tick_at(db, at(10))
    db.call("cancel", id=jobs(db)[0].id)
    assert slots(db) == [(at(10), "canceled", 1)]


def test_schedule_counts_outcomes_and_keeps_the_last_error(db: Db) -> None:
    add(db)
    for hour, outcome in ((10, "succeeded"), (11, "failed"), (12, "succeeded"), (13, None)):
        tick_at(db, at(hour))
        if outcome:
            db.run(
                db.node(),
                outcome,
                error={"kind": "permanent", "message": f"at {hour}"} if outcome == "failed" else None,
            )
    tick_at(db, at(14))  # skipped
    db.value("run_schedule", name="s")
    row = db.row("schedule_by_name", name="s")
    assert (row.runs, row.successes, row.failures, row.skips, row.running) == (5, 2, 1, 1, 2)
    assert (row.last_error, row.last_error_at) == ("at 11", at(11))
    assert (row.last_run, row.last_slot, row.last_outcome, row.next_run) == (at(14), at(14), "succeeded", at(15))


def test_counters_survive_pruned_slots(own_db: Db) -> None:
    db = own_db
    db.call("_make_slot_partitions", months=3)
    add(db)
    for hour, outcome in ((10, "succeeded"), (11, "failed")):
        tick_at(db, at(hour))
        db.run(db.node(), outcome, error={"kind": "permanent", "message": "x"} if outcome == "failed" else None)
    tick_at(db, at(12))
    tick_at(db, at(13))  # skipped
    before = db.row("schedule_by_name", name="s")
    later = T0 + timedelta(days=100)
    db.call("prune_slots", now=T0)  # the months of today, which the installation made
    assert db.value("prune_slots", keep=timedelta(days=100), now=later) == 0
    assert db.value("prune_slots", keep=timedelta(days=60), now=later) == 0  # a job of that month has not ended
    db.run(db.node(), "succeeded")
    assert db.value("prune_slots", keep=timedelta(days=60), now=later) == 1
    after = db.row("schedule_by_name", name="s")
    assert slots(db) == []
    assert (after.runs, after.successes, after.failures, after.skips) == (3, 2, 1, 1)
    assert (before.runs, before.failures, before.skips) == (3, 1, 1)


def test_prune_slots_also_prunes_the_default_partition(own_db: Db) -> None:
    """Nobody made the partition in time: without any node, say."""
    db = own_db
    add(db)
    for hour, outcome in ((10, "succeeded"), (11, "failed"), (12, "succeeded")):
        tick_at(db, at(hour))
        if hour < 12:
            db.run(db.node(), outcome, error={"kind": "permanent", "message": "x"} if outcome == "failed" else None)
    keep, month_is_over = timedelta(days=60), datetime(2031, 4, 1, tzinfo=UTC)
    db.call("prune_slots", keep=keep, now=month_is_over + keep - timedelta(seconds=1))
    assert len(slots(db)) == 3
    db.call("prune_slots", keep=keep, now=month_is_over + keep)
    assert slots(db) == [(at(12), None, 1)], "its job has not ended"
    row = db.row("schedule_by_name", name="s")
    assert (row.runs, row.successes, row.failures, row.running) == (3, 1, 1, 1)


def test_prune_slots_waits_for_writers_but_never_blocks_them(own_db: Db) -> None:
    db = own_db
    db.call("_make_slot_partitions", months=0)
    db.call("prune_slots", now=T0)  # the months of today, which the installation made
    add(db)
    tick_at(db, at(10))
    db.run(db.node(), "succeeded")
    scheduler = db.session()
    scheduler.begin()
    db.now = T0 + timedelta(days=200)
    scheduler.call("run_schedule", name="s")
    pruning = db.session().start("prune_slots").blocked()
    scheduler.call("tick")  # looks into every month
    scheduler.commit()
    assert pruning.value() == 1


@pytest.mark.parametrize(
    ("setup", "status"),
    [
        ({"enabled": False}, "disabled"),
        ({"end": at(9, 30)}, "ended"),
        ({"pattern": "0 0 30 2 *"}, "ended"),
        ({"pattern": "@reboot"}, "on_demand"),
    ],
)
def test_schedule_shows_its_status(db: Db, setup: dict[str, Any], status: str) -> None:
    add(db, **setup)
    assert db.row("schedule_by_name", name="s").status == status


def test_preview_schedule_lists_the_next_slots(db: Db) -> None:
    add(db, max_runs=2, enabled=False)
    assert [row[0] for row in db.call("preview_schedule", name="s")] == [at(10), at(11)]
    definition = {"pattern": "0 9 * * *", "tz": "America/New_York", "end": str(at(13, day=15))}
    assert [row[0] for row in db.call("preview_schedule_from", definition=definition)] == [at(13), at(13, day=15)]
    with refused("WB010"):
        db.call("preview_schedule_from", definition={"pattern": "bla"})
    assert db.count("schedules") == 1


def test_schedule_list_is_sorted_by_name_and_filtered(db: Db) -> None:
    add(db, "a", category="x", tags=["t"])
    add(db, "b", enabled=False)
    add(db, "c", category="x", tenant="other")

    def names(**wanted: Any) -> list[str]:
        return [row.name for row in db.call("schedule_list", **wanted)]

    assert names() == ["a", "b", "c"]
    assert names(category="x") == ["a", "c"]
    assert names(tag="t") == ["a"]
    assert names(status="disabled") == ["b"]
    assert names(tenant="other") == ["c"]
    assert names(after="a", max=1) == ["b"]


# -- by hand, while a job has not ended


def test_run_by_hand_can_refuse_to_overlap(db: Db) -> None:
    add(db)
    first = db.value("run_schedule", name="s", overlap="skip")
    with refused("WB011", f"schedule 's' is running: job {first} has not ended"):
        db.value("run_schedule", name="s", overlap="skip")
    assert db.row("schedule_by_name", name="s").runs == 1
    finish_all(db)
    assert db.value("run_schedule", name="s", overlap="skip") is not None


def test_run_by_hand_can_wait_for_the_previous_job(db: Db) -> None:
    add(db)
    tick_at(db, at(10))
    db.now = at(10, 1)
    second = db.value("run_schedule", name="s", overlap="queue")
    db.now = at(10, 2)
    third = db.value("run_schedule", name="s", overlap="queue")
    unblock(db)
    for job in (second, third):
        assert {row.id: row.wait for row in db.rows("jobs")}[job] == "blocked"
        finish_all(db)
        unblock(db)
        assert {row.id: row.wait for row in db.rows("jobs")}[job] is None


def test_run_by_hand_can_cancel_the_previous_job(db: Db) -> None:
    add(db)
    tick_at(db, at(10))
    job = db.value("run_schedule", name="s", overlap="cancel_previous")
    unblock(db)
    assert [(row.id, row.wait) for row in db.rows("jobs")] == [(job, None)]
    assert slots(db) == [(at(10), "canceled", 1), (at(10), None, 1)]


def test_run_by_hand_sees_the_job_of_a_tick_that_commits_meanwhile(db: Db) -> None:
    add(db)
    db.now = at(10)
    scheduler, hand = db.session(), db.session()
    scheduler.begin()
    scheduler.call("tick")
    running = hand.start("run_schedule", name="s", overlap="skip").blocked()
    scheduler.commit()
    with refused("WB011"):
        running.rows()


def test_overlap_of_a_run_by_hand_is_checked(db: Db) -> None:
    add(db, command="SELECT 1")
    with refused("WB003", "overlap 'never' is invalid: it must be allow, skip, queue or cancel_previous"):
        db.value("run_schedule", name="s", overlap="never")
    with refused("WB003", "overlap 'queue' is invalid: it must be allow or skip"):
        db.call("execute_schedule", name="s", overlap="queue")


# -- a job that fails and runs again


def test_a_schedule_whose_job_runs_again_is_retrying(db: Db) -> None:
    add(db)
    tick_at(db, at(10))
    epoch = db.node()
    db.run(epoch, "failed", error={"kind": "retryable", "message": "no route"}, delay=timedelta(minutes=1))
    shown = db.row("schedule_by_name", name="s")
    assert (shown.status, shown.failed_attempts, shown.failures, shown.running) == ("retrying", 1, 0, 1)
    assert (shown.last_error, shown.last_error_at) == ("no route", at(10))
    (slot,) = db.call("slot_list", name="s")
    assert (slot.outcome, slot.attempt) == (None, 1)
    db.make_ready()
    db.run(epoch, "failed", error={"kind": "permanent", "message": "gone"})
    shown = db.row("schedule_by_name", name="s")
    assert (shown.status, shown.failed_attempts, shown.failures, shown.last_error) == ("failing", 0, 1, "gone")
    (slot,) = db.call("slot_list", name="s")
    assert (slot.outcome, slot.attempt) == ("failed", 2)


def test_history_can_be_limited_to_an_outcome(db: Db) -> None:
    add(db)
    epoch = db.node()
    for hour, outcome in ((10, "succeeded"), (11, "failed"), (12, "succeeded")):
        tick_at(db, at(hour))
        db.run(epoch, outcome, error={"kind": "permanent"} if outcome == "failed" else None)
    assert [row.slot for row in db.call("slot_list", name="s", outcome="failed")] == [at(11)]
    assert [row.slot for row in db.call("slot_list", name="s", outcome="succeeded", max=1)] == [at(12)]
    assert db.call("slot_list", name="s", outcome="lost") == []


# -- psql alone


def test_execute_due_runs_commands_without_a_worker(db: Db) -> None:
    db.execute("CREATE TABLE public.log (n int)")
    try:
        add(db, "good", command="INSERT INTO log SELECT 1 FROM generate_series(1, 3)", role="postgres")
        add(db, "bad", command="INSERT INTO log VALUES (2); SELECT 1 / 0", max_attempts=1)
        db.now = at(10)
        rows = {row.schedule: row for row in db.call("execute_due")}
        assert (rows["good"].outcome, rows["good"].slot, rows["good"].error) == ("succeeded", at(10), None)
        assert (rows["bad"].outcome, rows["bad"].error) == ("failed", "division by zero")
        assert [row.n for row in db.execute("SELECT n FROM public.log")] == [1, 1, 1]
        assert sorted(outcome or "" for _, outcome, _ in slots(db)) == ["failed", "succeeded"]
        assert db.call("execute_due") == []
        (shown,) = db.call("slot_list", name="good")
        assert shown.result == {"rows": 3}
    finally:
        db.execute("DROP TABLE public.log")


def test_execute_due_runs_only_the_commands_of_the_tenant_that_is_given(db: Db) -> None:
    for tenant in ("default", "acme"):
        add(db, "tidy", command="SELECT 1", tenant=tenant)
    db.now = at(10)

    assert len(db.call("execute_due", tenant="acme")) == 1
    assert db.rows("jobs") == []  # the slot of the other tenant is still due
    assert len(db.call("execute_due")) == 1


def test_execute_due_retries_by_the_policy(db: Db) -> None:
    add(db, command="SELECT 1 / 0", max_attempts=2)
    db.now = at(10)
    db.call("execute_due")
    assert db.call("execute_due") == []
    db.make_ready()
    assert [row.outcome for row in db.call("execute_due")] == ["failed"]
    assert slots(db) == [(at(10), "failed", 1)]


def test_slots_that_psql_ran_say_who_ran_them_and_where(db: Db) -> None:
    add(db, "good", command="SELECT 1")
    add(db, "bad", command="SELECT 1 / 0", max_attempts=2)
    db.now = at(10)
    db.call("execute_due")
    (user,) = db.execute("SELECT session_user::text AS name")
    for name in ("good", "bad"):
        (shown,) = db.call("slot_list", name=name)
        assert (shown.node, shown.host) == (user.name, "local")
    db.make_ready()
    db.run(db.node("worker"), "failed", error={"kind": "permanent"})
    (shown,) = db.call("slot_list", name="bad")
    assert shown.node == "worker"


def test_execute_schedule_runs_one_command_here_and_now(db: Db) -> None:
    add(db, "one", command="SELECT 1", enabled=False)
    add(db, "other", command="SELECT 1")
    db.now = at(10)
    row = db.row("execute_schedule", name="one", overlap="skip")
    assert (row.schedule, row.slot, row.outcome, row.error) == ("one", at(10), "succeeded", None)
    (shown,) = db.call("slot_list", name="one")
    assert (shown.slot, shown.kind, shown.outcome, shown.result) == (at(10), "hand", "succeeded", {"rows": 1})
    assert shown.node is not None
    assert db.call("slot_list", name="other") == []
    assert [row.action for row in db.rows("audit", "id")][-1] == "execute_schedule"
    assert db.call("execute_schedule", name="none") == []


def test_execute_schedule_refuses_tasks_and_overlap(db: Db) -> None:
    add(db, "task")
    with refused("WB003", "schedule 'task' has no SQL command"):
        db.call("execute_schedule", name="task")
    add(db, "sql", command="SELECT 1 / 0", max_attempts=2)
    assert db.row("execute_schedule", name="sql").error == "division by zero"
    with refused("WB011"):
        db.call("execute_schedule", name="sql", overlap="skip")


def test_execute_due_skips_tasks_and_claimed_commands(db: Db) -> None:
    add(db, "task")
    add(db, "sql", command="SELECT 1")
    tick_at(db, at(10))
    db.claim(db.node())
    assert db.call("execute_due") == []


def test_execute_due_uses_the_role_only_for_its_command(db: Db) -> None:
    db.execute("DO $$ BEGIN CREATE ROLE clerk; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
    add(db, "a", command="DO $$ BEGIN ASSERT current_user = 'clerk'; END $$", role="clerk")
    add(db, "b", command="DO $$ BEGIN ASSERT current_user = session_user; END $$")
    db.now = at(10)
    db.begin()
    assert [row.outcome for row in db.call("execute_due")] == ["succeeded", "succeeded"]
    (row,) = db.execute("SELECT current_user = session_user AS own")
    assert row.own
    db.commit()


def test_a_syntax_check_leaves_nothing_behind(db: Db) -> None:
    with pytest.raises(psycopg.Error):
        add(db, "a", command="SELEC 1")
    add(db, "b", command="SELECT 1")
    assert db.execute("SELECT 1 FROM pg_proc WHERE proname = 'watchbill_parses'") == []


def test_execute_due_catches_up_one_run_per_call(db: Db) -> None:
    """Each waits for the one before, and a call ends what it runs when it commits."""
    add(db, command="SELECT 1", missed="catch_up")
    db.now = at(13)
    for hour in (10, 11, 12, 13):
        assert [row.slot for row in db.call("execute_due")] == [at(hour)]
    assert db.call("execute_due") == []

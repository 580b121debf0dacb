"""`watchbill verify`: each kind of damage is found as exactly one line, and a sound system has no finding."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.store.harness import Db
from watchbill.verify.invariants import read_invariants
from watchbill.verify.look import Finding, NoSuchPosition, Verifier

NOWHERE = "00000000-0000-7000-8000-000000000001"
NEVER_DRAWN = "+ (1::bigint << 45)"

GROUP = """
INSERT INTO watchbill.token_groups (name, total, next_pin, created_at) VALUES ('cells', 4, 5, now());
INSERT INTO watchbill.tokens (token_group, token, epoch, fence)
SELECT 'cells', token, n.epoch, 1 FROM generate_series(0, 4) token, watchbill.nodes n WHERE n.name = 'two';
INSERT INTO watchbill.pins (token_group, key, rank, token, pattern, created_by, created_at)
VALUES ('cells', 'k', 1, 4, 'two', 'ann', now());
INSERT INTO watchbill.locks (name, fence, holder, epoch, acquired_at)
SELECT 'leader/cells', 1, n.name, n.epoch, now() FROM watchbill.nodes n WHERE n.name = 'two';
"""

# What is done to the tables, by the invariant that finds it. <ready> is the id of the job that is called so.
DAMAGE = {
    "in_one_place": "UPDATE watchbill.finished_jobs SET id = <ready> WHERE id = <done>",
    "fence_has_claim": "DELETE FROM watchbill.claims",
    "fence_was_drawn": f"""
        UPDATE watchbill.jobs SET fence = fence {NEVER_DRAWN} WHERE id = <running>;
        UPDATE watchbill.claims SET fence = fence {NEVER_DRAWN}""",
    "known_wait": "UPDATE watchbill.jobs SET wait = 'nowhere' WHERE id = <ready>",
    "wait_has_key": "UPDATE watchbill.jobs SET wait_key = 'x' WHERE id = <later>",
    "running_job_waits_for_nothing": "UPDATE watchbill.jobs SET wait = 'delayed' WHERE id = <running>",
    "suspended_job_has_steps": "UPDATE watchbill.jobs SET wait_key = 'steps' WHERE id = <later>",
    "ready_job_is_due": "UPDATE watchbill.jobs SET run_at = now() + interval '1 hour' WHERE id = <ready>",
    "delayed_job_is_promoted": "UPDATE watchbill.jobs SET run_at = now() - interval '1 hour' WHERE id = <later>",
    "attempts_within_bound": "UPDATE watchbill.jobs SET attempt = max_attempts + 1 WHERE id = <ready>",
    "single_attempt_is_not_claimed_ahead": "UPDATE watchbill.jobs SET max_attempts = 1 WHERE id = <ready>",
    "known_policy": "UPDATE watchbill.jobs SET policy = 99 WHERE id = <ready>",
    "blocked_job_has_dependencies": "DELETE FROM watchbill.dependencies",
    "blocked_job_is_decided": """
        UPDATE watchbill.dependencies SET outcome = 'succeeded'; DELETE FROM watchbill.dependency_checks""",
    "only_running_jobs_are_asked_to_stop": "UPDATE watchbill.jobs SET canceling = true WHERE id = <ready>",
    "scheduled_job_has_slot": "UPDATE watchbill.jobs SET schedule_id = 1 WHERE id = <ready>",
    "unsupported_type_is_listed": """
        UPDATE watchbill.jobs SET wait = 'unsupported', wait_key = 'x' WHERE id = <ready>""",
    "running_job_holds_its_keys": "DELETE FROM watchbill.holds",
    "lane_has_meaning": "UPDATE watchbill.jobs SET lane = 7 WHERE id = <ready>",
    "once_in_history": """
        INSERT INTO watchbill.finished_jobs SELECT * FROM watchbill.finished_jobs WHERE id = <done>""",
    "outcome_fits_state": "UPDATE watchbill.finished_jobs SET outcome = 'failed' WHERE id = <done>",
    "finished_attempts_within_bound": "UPDATE watchbill.finished_jobs SET attempt = 99 WHERE id = <done>",
    "finished_fence_was_drawn": f"""
        UPDATE watchbill.finished_jobs SET fence = fence {NEVER_DRAWN} WHERE id = <done>""",
    "run_is_recorded_once": "INSERT INTO watchbill.attempts SELECT * FROM watchbill.attempts",
    "lost_claim_is_taken_back": """
        UPDATE watchbill.nodes SET state = 'lost' WHERE name = 'one';
        DELETE FROM watchbill.beats b USING watchbill.nodes n WHERE n.epoch = b.epoch AND n.name = 'one'""",
    "claim_has_node": """
        DELETE FROM watchbill.beats b USING watchbill.nodes n WHERE n.epoch = b.epoch AND n.name = 'one';
        DELETE FROM watchbill.nodes WHERE name = 'one'""",
    "claim_is_swept": """
        INSERT INTO watchbill.claims (fence, epoch, job_ids, at)
        SELECT -1, epoch, '{}', now() - interval '2 hours' FROM watchbill.claims LIMIT 1""",
    "stop_request_has_job": """
        INSERT INTO watchbill.cancels (job_id, fence, epoch, requested_at) VALUES (<ready>, 1, 1, now())""",
    "living_node_has_beat": """
        DELETE FROM watchbill.beats b USING watchbill.nodes n WHERE n.epoch = b.epoch AND n.name = 'one'""",
    "only_living_nodes_declare": "INSERT INTO watchbill.node_types VALUES (1, 'send', 1)",
    "only_living_nodes_are_candidates": "INSERT INTO watchbill.candidates VALUES (1, 'cells')",
    "epoch_was_drawn": f"""
        UPDATE watchbill.nodes SET epoch = epoch {NEVER_DRAWN} WHERE name = 'one';
        UPDATE watchbill.claims SET epoch = epoch {NEVER_DRAWN};
        UPDATE watchbill.beats b SET epoch = epoch {NEVER_DRAWN}
        WHERE NOT EXISTS (SELECT FROM watchbill.nodes n WHERE n.epoch = b.epoch)""",
    "hold_has_job": "INSERT INTO watchbill.holds VALUES ('key:api', <ready>)",
    "hold_has_state": "DELETE FROM watchbill.limit_states WHERE key = 'key:api'",
    "key_within_maximum": """
        UPDATE watchbill.limits SET max = 0 WHERE name = 'api';
        COMMIT;
        UPDATE watchbill.jobs SET priority = 1 WHERE id = <running>""",
    "ordered_key_has_one_hold": """
        UPDATE watchbill.jobs SET order_key = 'order:send:x' WHERE id IN (<ready>, <later>);
        INSERT INTO watchbill.limit_states (key, name) VALUES ('order:send:x', 'order:send');
        INSERT INTO watchbill.holds VALUES ('order:send:x', <ready>), ('order:send:x', <later>)""",
    "waiting_job_has_full_key": """
        UPDATE watchbill.jobs SET wait = 'parked', wait_key = 'key:api', limit_keys = '{key:api}'
        WHERE id = <ready>""",
    "idempotent_job_exists": "DELETE FROM watchbill.jobs WHERE id = <ready>",
    "dependency_has_child": "DELETE FROM watchbill.jobs WHERE id = <child>",
    "schedule_has_timer": "DELETE FROM watchbill.timers",
    "stored_schedule_is_valid": """
        ALTER TABLE watchbill.schedules DISABLE TRIGGER USER;
        UPDATE watchbill.schedules SET queue = repeat('x', 300);
        ALTER TABLE watchbill.schedules ENABLE TRIGGER USER""",
    "counted_hour_equals_history": """
        INSERT INTO watchbill.rollups (
          grain, dimension, at, name, succeeded, skipped, failed, timed_out, lost, snoozed, dead, canceled,
          run_seconds, wait_seconds, is_counted)
        VALUES ('hour', 'all', date_trunc('hour', now()), '', 7, 0, 1, 0, 0, 0, 1, 0, 1, 1, true)""",
    "operation_adds_up": """
        INSERT INTO watchbill.bulk_operations (kind, conditions, arguments, created_by, created_at, next_at, seen)
        VALUES ('retry', '[]', '{}', 'ann', now(), now(), 1)""",
    "public_calls_nothing": "GRANT EXECUTE ON FUNCTION watchbill.purge TO PUBLIC",
    "row_security_is_complete": "ALTER TABLE watchbill.jobs ENABLE ROW LEVEL SECURITY",
    "timer_is_ahead": "UPDATE watchbill.timers SET last_slot = next_run",
    "slot_is_open_while_its_job_is": f"""
        INSERT INTO watchbill.slots (schedule_id, slot, job_id, fired_at)
        SELECT id, now(), '{NOWHERE}', now() FROM watchbill.schedules""",
    "token_moves_elsewhere": "UPDATE watchbill.tokens SET next = epoch, asked_at = now() WHERE token = 0",
    "moving_token_knows_since_when": "UPDATE watchbill.tokens SET asked_at = now() WHERE token = 0",
    "group_has_all_tokens": "DELETE FROM watchbill.tokens WHERE token = 0",
    "owner_lives": "UPDATE watchbill.tokens SET epoch = 5 WHERE token = 0",
    "next_owner_lives": "UPDATE watchbill.tokens SET next = 5, asked_at = now() WHERE token = 0",
    "token_moves_in_time": """
        UPDATE watchbill.tokens t SET next = n.epoch, asked_at = now() - interval '1 hour'
        FROM watchbill.nodes n WHERE n.name = 'one' AND t.token = 0""",
    "pin_has_token": "DELETE FROM watchbill.tokens WHERE token = 4",
    "extra_token_has_pin": "INSERT INTO watchbill.tokens (token_group, token, epoch, fence) VALUES ('cells', 9, 0, 1)",
    "pin_ranks_have_no_gaps": "UPDATE watchbill.pins SET rank = 2",
    "lock_fence_was_drawn": f"UPDATE watchbill.locks SET fence = fence {NEVER_DRAWN}",
}  # fmt: skip


class Site:
    """A system in the present, because the clock of the database judges what is due. It has jobs of each kind."""

    def __init__(self, db: Db) -> None:
        db.now = datetime.now(UTC)
        self.db, self.epoch = db, db.node("one")
        db.node("two")
        db.value("set_limit", name="api", max=5)
        self.jobs = {"running": db.enqueue("send", limit_keys=["api"])}
        db.claim_one(self.epoch)
        self.jobs["done"] = db.enqueue("send")
        db.run(self.epoch, "succeeded")
        self.jobs["dead"] = db.enqueue("send", max_attempts=1)
        db.run(self.epoch, "failed")
        self.jobs["ready"] = db.enqueue("send", idempotency_key="k")
        self.jobs["later"] = db.enqueue("send", delay=timedelta(hours=1))
        self.jobs["child"] = db.enqueue("send", depends_on=[self.jobs["ready"]])
        db.value("add_schedule", name="nightly", pattern="@daily", type="send")
        self.execute(GROUP)

    def execute(self, statements: str) -> None:
        for name, job in self.jobs.items():
            statements = statements.replace(f"<{name}>", f"'{job}'")
        with psycopg.connect(self.db.url, autocommit=True) as connection:
            connection.execute(statements.encode())

    def verify(
        self, job: UUID | None = None, *, full: bool = False, start: str | None = None, **more: Any
    ) -> list[Finding]:
        """Looks, without the waits that a real system needs."""
        options = {"second_look": 0.0, "patience": 60.0, "pause_factor": 0.0} | more
        with psycopg.connect(self.db.url, autocommit=True) as connection:
            verifier = Verifier(connection, "watchbill", **options)
            if job is not None:
                return list(verifier.look_at_job(job))
            return list(verifier.look_at_everything(start) if full else verifier.look_quickly())


@pytest.fixture
def site(schema_database: str) -> Iterator[Site]:
    db = Db(schema_database)
    try:
        yield Site(db)
    finally:
        db.close()


def test_a_sound_system_has_no_finding(site: Site) -> None:
    assert site.verify() == []
    assert site.verify(full=True) == []
    for job in site.jobs.values():
        assert site.verify(job) == []


def test_each_invariant_is_tried_with_damage() -> None:
    assert sorted(DAMAGE) == sorted(each.name for each in read_invariants())


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found_as_exactly_one_line(site: Site, name: str) -> None:
    site.execute(DAMAGE[name])
    for full in (False, True):
        assert [(each.invariant, each.state) for each in site.verify(full=full)] == [(name, "damage")]


def test_damage_of_one_job_is_found_by_its_id(site: Site) -> None:
    site.execute("UPDATE watchbill.jobs SET attempt = max_attempts + 1 WHERE id IN (<ready>, <later>)")
    (found,) = site.verify(site.jobs["ready"])
    assert (found.subject, found.what) == (f"job {site.jobs['ready']}", "it has used 11 of 10 attempts")
    assert site.verify(site.jobs["done"]) == []


def test_a_suspect_that_is_gone_at_the_second_look_is_none(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.execute(DAMAGE["delayed_job_is_promoted"])
    wait = Verifier._wait_for_transactions

    def promote_and_wait(verifier: Verifier, opened: dict[str, str]) -> str | None:
        site.execute("SELECT watchbill.promote()")
        return wait(verifier, opened)

    monkeypatch.setattr(Verifier, "_wait_for_transactions", promote_and_wait)
    assert site.verify() == []


def test_a_suspect_that_is_another_row_version_at_the_second_look_is_none(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was changed meanwhile, so something works on it."""
    site.execute(DAMAGE["delayed_job_is_promoted"])
    wait = Verifier._wait_for_transactions

    def touch_and_wait(verifier: Verifier, opened: dict[str, str]) -> str | None:
        site.execute("UPDATE watchbill.jobs SET priority = priority + 1 WHERE id = <later>")
        return wait(verifier, opened)

    monkeypatch.setattr(Verifier, "_wait_for_transactions", touch_and_wait)
    assert site.verify() == []


def test_what_an_open_transaction_hides_is_undecided(site: Site) -> None:
    site.execute(DAMAGE["delayed_job_is_promoted"])
    with psycopg.connect(site.db.url) as other:
        other.execute("UPDATE watchbill.jobs SET wait = NULL WHERE id = %s", (site.jobs["later"],))
        (found,) = site.verify(patience=0.0)
        assert (found.state, found.held_by) == ("undecided", f"pid {other.info.backend_pid}")
        other.rollback()
    (found,) = site.verify()
    assert (found.state, found.held_by) == ("damage", None)


def test_two_tenants_may_use_the_same_id(site: Site) -> None:
    """A producer chooses ids, so one tenant could otherwise make another's look damaged."""
    site.execute("""
        SELECT watchbill.enqueue('send', id => <done>, tenant => 'other');
        INSERT INTO watchbill.finished_jobs SELECT (jsonb_populate_record(f, '{"tenant": "third"}')).*
        FROM watchbill.finished_jobs f WHERE f.id = <done>""")  # fmt: skip
    assert site.verify(full=True) == []


def test_a_limit_that_was_lowered_is_no_damage(site: Site) -> None:
    site.db.value("set_limit", name="api", max=0)
    assert site.verify(full=True) == []


def test_a_full_run_is_continued_where_it_was(site: Site) -> None:
    site.execute(DAMAGE["known_policy"] + ";" + DAMAGE["schedule_has_timer"])
    assert {each.invariant for each in site.verify(full=True)} == {"known_policy", "schedule_has_timer"}
    assert {each.invariant for each in site.verify(full=True, start="jobs:0")} == {"known_policy"}
    assert site.verify(full=True, start="jobs:200") == []
    for wrong in ("jobs", "jobs:x", "nothing:1"):
        with pytest.raises(NoSuchPosition):
            site.verify(full=True, start=wrong)


def test_what_a_role_may_not_read_is_unchecked(site: Site) -> None:
    site.execute("CREATE ROLE only_jobs; GRANT USAGE ON SCHEMA watchbill TO only_jobs;"
                 "GRANT SELECT ON watchbill.jobs, watchbill.policies TO only_jobs")  # fmt: skip
    site.execute(DAMAGE["known_policy"])
    try:
        with psycopg.connect(site.db.url, autocommit=True) as connection:
            connection.execute("SET ROLE only_jobs")
            found = list(Verifier(connection, "watchbill", second_look=0.0, pause_factor=0.0).look_quickly())
    finally:
        site.execute("DROP OWNED BY only_jobs; DROP ROLE only_jobs")
    assert {each.state for each in found if each.invariant == "known_policy"} == {"damage"}
    unchecked = {each.invariant: each.what for each in found if each.state == "unchecked"}
    assert "permission denied" in unchecked["fence_has_claim"]

"""SELECT ... FOR UPDATE on the views of the facades: it locks rows, or it is refused. PostgreSQL itself would ignore it
on a view with UNION."""

from __future__ import annotations

import psycopg
import pytest

from tests.compat.psql import Psql
from watchbill.store.facades import Facade, install_facade

pytestmark = pytest.mark.every_server

VIEWS = (
    "SELECT c.oid::regclass::text FROM pg_class c "
    "WHERE c.relkind = 'v' AND obj_description(c.oid) LIKE 'Watchbill''s facade %'"
)
THAT_LOCK = {
    "scheduled_jobs", "job_queue", "job_locks", "jobforge_job_results", "jobforge_connector_configs", "sync_claim",
    "sync_audit", "sync_rebalance",
}  # fmt: skip
THAT_REFUSE = {
    "jobforge_jobs": "jobforge_claim_jobs_in_place_of_for_update",
    "jobforge_job_attempts": "jobforge_claim_jobs_in_place_of_for_update",
    "job_execution_history": "claim_next_job_in_place_of_for_update",
    "worker_heartbeat": "DISTINCT",
    "sync_lock": "DISTINCT",
    "sync_node": "outer join",
    "sync_token": "outer join",
    "seesaw.jobs": "outer join",
}


def test_every_view_locks_rows_or_refuses_to(psql: Psql) -> None:
    install_facade(psql.url, Facade.choose("watchbill", "seesaw"))
    views = {view for (view,) in psql(VIEWS)}
    assert views == THAT_LOCK | set(THAT_REFUSE)
    for strength in ("UPDATE", "UPDATE SKIP LOCKED", "NO KEY UPDATE", "SHARE"):
        for view, why in THAT_REFUSE.items():
            with pytest.raises(psycopg.Error, match=why):
                psql(f"SELECT * FROM {view} FOR {strength}")
        for view in THAT_LOCK:
            plan = psql(f"EXPLAIN (VERBOSE) SELECT * FROM {view} FOR {strength}")
            # The lines after LockRows are its own. It finds the rows to lock by their ctid.
            assert "LockRows" in plan[0][0]
            assert ".ctid" in plan[1][0], f"{view} locks nothing"


def test_the_claim_query_of_the_runbook_names_the_function_to_call(psql: Psql) -> None:
    psql("SELECT jobforge_enqueue_job('acme', 'report', '{}')")
    claim = (
        "SELECT * FROM jobforge_jobs WHERE status = 'queued' AND run_at <= NOW() "
        "ORDER BY run_at ASC LIMIT 10 FOR UPDATE SKIP LOCKED"
    )
    for statement in (
        claim,
        f"EXPLAIN {claim}",
        f"EXPLAIN ANALYZE {claim}",
        f"WITH due AS ({claim}) UPDATE jobforge_jobs j SET status = 'canceled' FROM due WHERE j.id = due.id",
    ):
        with pytest.raises(psycopg.errors.WrongObjectType, match='"jobforge_claim_jobs_in_place_of_for_update"'):
            psql(statement)
    assert len(psql.one("SELECT jobforge_claim_jobs('w1', 10)")) == 1


def test_two_sessions_lock_different_rows(psql: Psql) -> None:
    for name in ("a", "b", "c"):
        psql("SELECT add_job(%s, '0 3 * * *')", name)
    due = "SELECT name FROM scheduled_jobs ORDER BY name LIMIT 2 FOR UPDATE SKIP LOCKED"
    with psql.begin() as other:
        assert other(due) == [("a",), ("b",)]
        assert psql(due) == [("c",)]

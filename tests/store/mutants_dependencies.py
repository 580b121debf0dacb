"""Mutants of the functions for jobs that wait for others: what mutants.py has for the rest."""
# ruff: noqa: E501

from __future__ import annotations

from tests.store.mutants import (
    DEPENDENCIES,
    DEPENDENCY_ENDINGS,
    FINISH_REQUEUE,
    PURGE,
    RESCHEDULE,
    SETTLE,
    SWEEP_DEPENDENCIES,
    UNBLOCK,
    Mutant,
)

MUTANTS_OF_DEPENDENCIES: list[Mutant] = [Mutant(f"dependencies: {name}", file, original, replacement, "dependencies") for name, file, original, replacement in [
    # Enqueue.
    ("a job that was sent before", DEPENDENCIES, " AND k.fresh IS NOT FALSE AND ( SELECT true FROM dependencies e WHERE e.child = k.id AND e.tenant = k.tenant LIMIT 1) IS NULL", " AND k.fresh IS NOT FALSE"),
    ("a job whose key is known", DEPENDENCIES, "WHERE k.actual = k.id AND", "WHERE"),
    ("a parent whose key is known", DEPENDENCIES, "coalesce(p.actual, w.parent) AS parent", "w.parent AS parent"),
    ("circles", DEPENDENCIES, "PERFORM _check_no_cycle(new_jobs);", ""),
    ("unknown parents", DEPENDENCIES, "PERFORM _check_parents(parents, tenants, types);", ""),
    ("other tenants", DEPENDENCIES, "WHERE j.id = x.parent AND j.tenant = x.tenant", "WHERE j.id = x.parent"),
    ("parents are asked", DEPENDENCIES, "IF cardinality(to_watch || skipped) > 0 THEN", "IF false THEN"),
    ("parents that have succeeded", DEPENDENCIES, "  PERFORM _queue_or_cancel_children(ready, tenants_of_ready, t);\n", ""),
    ("only a success is taken at its word", DEPENDENCIES, " AND f.state = 'succeeded' LIMIT 1) f),", " LIMIT 1) f),"),
    # The end of a parent.
    ("the quick settle tells", SETTLE, "IF num_nonnulls(scheduled, parents) > 0 THEN RETURN", "IF scheduled IS NOT NULL THEN RETURN"),
    ("every other end tells", FINISH_REQUEUE, "IF num_nonnulls(scheduled, parents) > 0 THEN children", "IF scheduled IS NOT NULL THEN children"),
    ("only what is open is written", DEPENDENCY_ENDINGS, "AND d.tenant = p.tenant AND d.outcome IS NULL\n", "AND d.tenant = p.tenant\n"),
    ("a failure is marked", DEPENDENCY_ENDINGS, "bool_or(x.outcome = 'failed'), t", "false, t"),
    ("the bell", DEPENDENCY_ENDINGS, "IF children IS NOT NULL THEN PERFORM _wake_unblockers(); END IF;", ""),
    ("a skip is not a failure", DEPENDENCY_ENDINGS, "WHEN state = 'canceled' AND error->>'kind' = 'skipped' THEN 'skipped' ", ""),
    # The look.
    ("isolation", UNBLOCK, "PERFORM _check_isolation('unblock');", ""),
    ("not its own transaction's", UNBLOCK, "WHERE u.at >= since AND u.by IS DISTINCT FROM self\n", "WHERE u.at >= since\n"),
    ("rows that another looks at", UNBLOCK, "ORDER BY u.at LIMIT max FOR UPDATE SKIP LOCKED) x;", "ORDER BY u.at LIMIT max FOR UPDATE) x;"),
    ("what is still open", DEPENDENCY_ENDINGS, "WHEN s.open THEN 'blocked' WHEN s.skipped IS NOT NULL", "WHEN s.skipped IS NOT NULL"),
    ("what fails at once", UNBLOCK, "WHERE c.any_failed AND (SELECT", "WHERE false AND (SELECT"),
    ("locked children are left", UNBLOCK, "ORDER BY j.id FOR UPDATE SKIP LOCKED) l;\n    RETURN QUERY SELECT d.id, d.state FROM _queue_or_cancel_children", "ORDER BY j.id FOR UPDATE) l;\n    RETURN QUERY SELECT d.id, d.state FROM _queue_or_cancel_children"),
    ("locked children are kept", UNBLOCK, "AND (u.id <> ALL (decidable) OR u.id = ANY (locked))\n", "\n"),
    ("its time", DEPENDENCY_ENDINGS, "SET wait = CASE WHEN j.run_at > t THEN 'delayed' END, run_at", "SET wait = NULL, run_at"),
    ("its place among others", DEPENDENCY_ENDINGS, "run_at = greatest(j.run_at, t)", "run_at = j.run_at"),
    # What producers asked.
    ("the living are marked", UNBLOCK, "UPDATE jobs j SET awaited = true WHERE j.id = ANY (unfinished) AND NOT j.awaited;\n  SELECT", "SELECT"),
    ("guarded ones too", UNBLOCK, "ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED);", "ORDER BY j.id FOR UPDATE SKIP LOCKED);"),
    ("does not wait for an end", UNBLOCK, "ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED);", "ORDER BY j.id FOR NO KEY UPDATE);"),
    ("the purged", UNBLOCK, "  ended := ended || purged;\n", "  purged := '{}';\n"),
    ("those about to end are asked again", UNBLOCK, "AND (u.id = ANY (unfinished) OR u.id = ANY (ended));", ";"),
    # Second thoughts.
    ("a retry takes back", RESCHEDULE, "PERFORM _block_children_again(f.id, f.tenant, t);", ""),
    ("a revived parent tells again", RESCHEDULE, "OR EXISTS (SELECT FROM dependencies d WHERE d.parent = f.id AND d.tenant = f.tenant), wait", ", wait"),
    ("a retry holds those who wait", RESCHEDULE, "ORDER BY j.id FOR UPDATE);", "ORDER BY j.id);"),
    ("only what was canceled for it", RESCHEDULE, " AND c.error->>'kind' IN ('dependency', 'skipped') OR", " OR"),
    ("only what would not be canceled again", RESCHEDULE, "AND x.tenant = tenant AND v.verdict = 'blocked' AND", "AND x.tenant = tenant AND"),
    ("what has run", RESCHEDULE, "UPDATE dependencies d SET outcome = NULL, result = NULL WHERE d.parent = ANY (parents) AND d.tenant = tenant AND d.child = ANY (waiting || ended);", "UPDATE dependencies d SET outcome = NULL, result = NULL WHERE d.parent = ANY (parents) AND d.tenant = tenant AND d.child = ANY (waiting);"),
    ("purged with the child", PURGE, "DELETE FROM dependencies d WHERE d.ctid", "DELETE FROM dependencies d WHERE false AND d.ctid"),
    ("swept with the child", SWEEP_DEPENDENCIES, "WHERE NOT EXISTS (SELECT FROM jobs j WHERE j.id = d.child AND j.tenant = d.tenant)\n", "WHERE true\n"),
]]  # fmt: skip

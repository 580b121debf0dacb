"""Mutants of the functions for jobs that wait for others: what mutants.py has for the rest."""
# ruff: noqa: E501

from __future__ import annotations

from tests.store.mutants import DEPENDENCIES, LISTS, OPERATE, SETTLE, Mutant

MUTANTS_OF_DEPENDENCIES: list[Mutant] = [Mutant(f"dependencies: {name}", file, original, replacement, "dependencies") for name, file, original, replacement in [
    # Enqueue.
    ("a job that was sent before", DEPENDENCIES, " AND k.fresh IS NOT FALSE AND (SELECT true FROM dependencies e WHERE e.child = k.id LIMIT 1) IS NULL", " AND k.fresh IS NOT FALSE"),
    ("a job whose key is known", DEPENDENCIES, "WHERE k.actual = k.id AND", "WHERE"),
    ("a parent whose key is known", DEPENDENCIES, "coalesce(p.actual, w.parent) AS parent", "w.parent AS parent"),
    ("circles", DEPENDENCIES, "PERFORM refuse_cycle(depend.news);", ""),
    ("unknown parents", DEPENDENCIES, "PERFORM refuse_parents(parents, tenants, types);", ""),
    ("other tenants", DEPENDENCIES, "WHERE p.tenant IS DISTINCT FROM x.tenant LIMIT 1;", "WHERE p.tenant IS NULL LIMIT 1;"),
    ("parents are asked", DEPENDENCIES, "IF cardinality(asked || needless) > 0 THEN\n    INSERT", "IF false THEN\n    INSERT"),
    ("parents that have succeeded", DEPENDENCIES, "  PERFORM decide(ready, add_dependencies.t);\n", ""),
    ("only a success is taken at its word", DEPENDENCIES, " AND f.state = 'succeeded' LIMIT 1) f),", " LIMIT 1) f),"),
    # The end of a parent.
    ("the quick settle tells", SETTLE, "    IF parents IS NOT NULL THEN\n", "    IF false THEN\n"),
    ("every other end tells", SETTLE, "RETURN CASE WHEN parents IS NOT NULL THEN", "RETURN CASE WHEN false THEN"),
    ("only what is open is written", DEPENDENCIES, "WHERE d.parent = p.id AND d.outcome IS NULL\n", "WHERE d.parent = p.id\n"),
    ("a failure is marked", DEPENDENCIES, "bool_or(u.outcome = 'failed'), end_parents.t", "false, end_parents.t"),
    ("the bell", DEPENDENCIES, "IF children IS NOT NULL THEN PERFORM wake_unblockers(); END IF;", ""),
    ("a skip is no failure", DEPENDENCIES, "WHEN state = 'canceled' AND error->>'kind' = 'skipped' THEN 'skipped' ", ""),
    # The look.
    ("isolation", DEPENDENCIES, "PERFORM check_isolation('unblock');", ""),
    ("not its own transaction's", DEPENDENCIES, "WHERE u.at >= unblock.since AND u.by IS DISTINCT FROM self\n", "WHERE u.at >= unblock.since\n"),
    ("rows that another looks at", DEPENDENCIES, "ORDER BY u.at LIMIT unblock.max FOR UPDATE SKIP LOCKED) x;", "ORDER BY u.at LIMIT unblock.max FOR UPDATE) x;"),
    ("what is still open", DEPENDENCIES, "WHEN s.open THEN 'blocked' WHEN s.skipped IS NOT NULL", "WHEN s.skipped IS NOT NULL"),
    ("what fails at once", DEPENDENCIES, "WHERE c.hopeless AND (SELECT", "WHERE false AND (SELECT"),
    ("locked children are left", DEPENDENCIES, "ORDER BY j.id FOR UPDATE SKIP LOCKED);\n    RETURN QUERY SELECT d.id, d.state FROM decide", "ORDER BY j.id FOR UPDATE);\n    RETURN QUERY SELECT d.id, d.state FROM decide"),
    ("locked children are kept", DEPENDENCIES, "AND (u.id <> ALL (decidable) OR u.id = ANY (locked));", ";"),
    ("its time", DEPENDENCIES, "SET wait = CASE WHEN j.run_at > decide.t THEN 'delayed' END, run_at", "SET wait = NULL, run_at"),
    ("its place among others", DEPENDENCIES, "run_at = greatest(j.run_at, decide.t)", "run_at = j.run_at"),
    # What producers asked.
    ("the living are marked", DEPENDENCIES, "UPDATE jobs j SET awaited = true WHERE j.id = ANY (living) AND NOT j.awaited;\n  SELECT", "SELECT"),
    ("guarded ones too", DEPENDENCIES, "ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED);", "ORDER BY j.id FOR UPDATE SKIP LOCKED);"),
    ("nobody waits for an end", DEPENDENCIES, "ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED);", "ORDER BY j.id FOR NO KEY UPDATE);"),
    ("the purged", DEPENDENCIES, "  over := over || purged;\n", "  purged := '{}';\n"),
    ("those about to end are asked again", DEPENDENCIES, "AND (u.id = ANY (living) OR u.id = ANY (over));", ";"),
    # Second thoughts.
    ("a retry takes back", OPERATE, "PERFORM take_back_ends(f.id, revive.t);", ""),
    ("a revived parent tells again", OPERATE, "EXISTS (SELECT FROM dependencies d WHERE d.parent = f.id), restore.wait", "false, restore.wait"),
    ("a retry holds those who wait", DEPENDENCIES, "ORDER BY j.id FOR UPDATE);                         -- whoever decides", "ORDER BY j.id);   -- whoever decides"),
    ("only what was canceled for it", DEPENDENCIES, " AND c.error->>'kind' IN ('dependency', 'skipped') OR", " OR"),
    ("only what would not be canceled again", DEPENDENCIES, "WHERE x.id = v.child AND v.verdict = 'blocked' AND", "WHERE x.id = v.child AND"),
    ("what has run", DEPENDENCIES, "UPDATE dependencies d SET outcome = NULL WHERE d.parent = ANY (parents) AND d.child = ANY (waiting || over);", "UPDATE dependencies d SET outcome = NULL WHERE d.parent = ANY (parents) AND d.child = ANY (waiting);"),
    ("purged with the child", LISTS, "DELETE FROM dependencies d WHERE d.ctid", "DELETE FROM dependencies d WHERE false AND d.ctid"),
    ("swept with the child", DEPENDENCIES, "x(child) WHERE NOT EXISTS (SELECT FROM jobs j WHERE j.id = x.child)\n", "x(child) WHERE true\n"),
]]  # fmt: skip

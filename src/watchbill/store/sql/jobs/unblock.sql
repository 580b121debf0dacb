-- Queues or cancels blocked jobs of which a parent has ended, and makes jobs ready of which a step
-- waits for jobs that have ended: those in `ids`, or any. A worker
-- calls it for the jobs that settle() returns as blocked, and a node that is not idle once a
-- second. Returns the jobs that it queued or canceled, and as `blocked` children that the next call
-- has to check: call it, each time in a new transaction, until it returns nothing. Locks the rows
-- of dependency_checks and the children; leaves locked ones for the next call. `since` lets a
-- frequent caller skip index entries of older rows, which an old snapshot keeps.
CREATE OR REPLACE FUNCTION unblock(
  ids uuid[] DEFAULT NULL,
  max int DEFAULT 1000,
  since timestamptz DEFAULT '-infinity',
  now timestamptz DEFAULT NULL
)
RETURNS TABLE (id uuid, state text)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  -- Skips checks that this transaction has written: other sessions do not see them yet.
  self xid8 := pg_current_xact_id_if_assigned();
  tids tid[];
  to_watch tid[];
  children uuid[];
  -- Per child: whether a parent has failed, which may decide it.
  any_failed boolean[];
  decidable uuid[];
  locked uuid[];
  tenants text[];
  ready uuid[];
  others uuid[]; -- that wait in a step, and are locked
BEGIN
  IF _may_be_bound() THEN PERFORM _check_shared_change('unblock'); END IF;
  PERFORM _check_isolation('unblock');
  IF ids IS NULL THEN
    SELECT
      array_agg(x.tid) FILTER (WHERE x.what = 'child'),
      array_agg(x.id) FILTER (WHERE x.what = 'child'),
      array_agg(x.failed) FILTER (WHERE x.what = 'child'),
      array_agg(x.tid) FILTER (WHERE x.what = 'parent')
    INTO tids, children, any_failed, to_watch
    FROM (
      SELECT u.ctid AS tid, u.id, u.what, u.failed
      FROM dependency_checks u
      WHERE u.at >= since
        AND u.by IS DISTINCT FROM self
      ORDER BY u.at
      LIMIT max
      FOR UPDATE SKIP LOCKED) x;
  ELSE
    SELECT array_agg(x.tid), array_agg(x.id), array_agg(x.failed)
    INTO tids, children, any_failed
    FROM (
      SELECT u.ctid AS tid, u.id, u.failed
      FROM dependency_checks u
      WHERE u.id = ANY (ids)
        AND u.what = 'child'
        AND u.by IS DISTINCT FROM self
      LIMIT max
      FOR UPDATE SKIP LOCKED) x;
  END IF;
  IF to_watch IS NOT NULL THEN
    RETURN QUERY SELECT a.id, 'blocked' FROM unnest(_mark_parents_awaited(to_watch, t)) a(id);
  END IF;
  IF children IS NULL THEN RETURN; END IF;
  -- Looks for an unfinished parent from the last one on: the first ones mostly end first.
  decidable := ARRAY(
    SELECT j.id
    FROM (
      SELECT x.id, bool_or(x.any_failed) AS any_failed
      FROM unnest(children, any_failed) x(id, any_failed)
      GROUP BY 1) c
    JOIN jobs j ON j.id = c.id AND j.wait = 'blocked' AND j.fence = 0
    WHERE c.any_failed
      AND (
        SELECT d.run_if
        FROM dependencies d
        WHERE d.child = c.id
          AND d.tenant = j.tenant
        LIMIT 1) <> 'all_finished'
      OR (
        SELECT true
        FROM dependencies d
        WHERE d.child = c.id
          AND d.tenant = j.tenant
          AND d.outcome IS NULL
        ORDER BY d.place DESC
        LIMIT 1) IS NULL);
  IF cardinality(decidable) > 0 THEN
    SELECT coalesce(array_agg(l.id), '{}'), coalesce(array_agg(l.tenant), '{}')
    INTO locked, tenants
    FROM (
      SELECT j.id, j.tenant
      FROM jobs j
      WHERE j.id = ANY (decidable)
        AND j.wait = 'blocked'
        AND j.fence = 0
      ORDER BY j.id
      FOR UPDATE SKIP LOCKED) l;
    RETURN QUERY SELECT d.id, d.state FROM _queue_or_cancel_children(locked, tenants, t) d;
  END IF;
  SELECT w.ready, w.others INTO ready, others FROM _wake_step_waiters(children, t) w;
  RETURN QUERY SELECT r, 'queued' FROM unnest(ready) r;
  DELETE FROM dependency_checks u
  WHERE u.ctid = ANY (tids)
    AND (u.id <> ALL (decidable) OR u.id = ANY (locked))
    AND u.id <> ALL (others);
END $$;

-- Marks parents as awaited. Records the outcome of those that have ended, and returns their
-- children, to be checked after the commit. Locks the parents; leaves locked ones for the next
-- call.
CREATE OR REPLACE FUNCTION _mark_parents_awaited(to_watch tid[], t timestamptz)
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  -- Sorted against deadlocks: two transactions may record the same parents.
  parents uuid[] := ARRAY(
    SELECT DISTINCT u.id
    FROM dependency_checks u
    WHERE u.ctid = ANY (to_watch)
    ORDER BY 1);
  -- NO KEY does not conflict with guard().
  unfinished uuid[] := ARRAY(
    SELECT j.id
    FROM jobs j
    WHERE j.id = ANY (parents)
    ORDER BY j.id
    FOR NO KEY UPDATE SKIP LOCKED);
  ended uuid[];
  outcomes text[];
  tenants text[];
  purged uuid[];
  tenants_of_purged text[];
BEGIN
  UPDATE jobs j SET awaited = true WHERE j.id = ANY (unfinished) AND NOT j.awaited;
  SELECT array_agg(f.id), array_agg(_dependency_outcome(f.state, f.error)), array_agg(f.tenant)
  INTO ended, outcomes, tenants
  FROM unnest(parents) x(id)
  CROSS JOIN LATERAL (
    SELECT f.id, f.state, f.error, f.tenant
    FROM finished_jobs f
    WHERE f.id = x.id
      AND f.finished_at >= _history_start(x.id)
    FOR KEY SHARE SKIP LOCKED) f;
  SELECT coalesce(array_agg(x.id), '{}'), array_agg(x.tenant)
  INTO purged, tenants_of_purged
  FROM (
    SELECT d.parent AS id, d.tenant
    FROM dependencies d
    WHERE d.parent = ANY (parents)
      AND d.outcome IS NULL
    UNION
    SELECT w.child, w.tenant
    FROM step_waits w
    WHERE w.child = ANY (parents)
      AND w.outcome IS NULL) x
  WHERE NOT EXISTS (SELECT FROM jobs j WHERE j.id = x.id AND j.tenant = x.tenant)
    AND NOT EXISTS (
      SELECT
      FROM finished_jobs f
      WHERE f.id = x.id
        AND f.tenant = x.tenant
        AND f.finished_at >= _history_start(x.id));
  ended := ended || purged;
  tenants := tenants || tenants_of_purged;
  outcomes := outcomes || array_fill('failed'::text, ARRAY[cardinality(purged)]);
  DELETE FROM dependency_checks u
  WHERE u.ctid = ANY (to_watch)
    AND (u.id = ANY (unfinished) OR u.id = ANY (ended));
  RETURN CASE
      WHEN cardinality(ended) > 0 THEN _record_parent_endings(ended, tenants, outcomes, t)
    END;
END $$;

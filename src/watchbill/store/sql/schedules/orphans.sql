-- Returns those of the given schedules that are orphans. An orphan belongs to an app that has live
-- nodes which have declared schedules, and none of these nodes declares this one.
CREATE OR REPLACE FUNCTION _find_orphans(ids bigint[])
RETURNS bigint[]
LANGUAGE sql STABLE AS $$
  SELECT coalesce(array_agg(s.id), '{}')
  FROM schedules s
  WHERE s.id = ANY (ids)
    AND s.owner IS NOT NULL
    AND EXISTS (
      SELECT
      FROM nodes n
      WHERE n.app = s.owner
        AND n.state IN ('active', 'draining')
        AND n.declared_at IS NOT NULL)
    AND NOT EXISTS (
      SELECT
      FROM declarations d
      JOIN nodes n USING (epoch)
      WHERE d.schedule_id = s.id
        AND n.app = s.owner
        AND n.state IN ('active', 'draining'))
$$;

-- Stops the orphans among due schedules, and returns the ids of the other schedules. The caller has
-- locked the timers.
CREATE OR REPLACE FUNCTION _stop_orphans(ids bigint[])
RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  orphaned bigint[];
BEGIN
  IF NOT EXISTS (
    SELECT
    FROM nodes n
    WHERE n.state IN ('active', 'draining')
      AND n.declared_at IS NOT NULL) THEN
    RETURN ids;
  END IF;
  orphaned := _find_orphans(ids);
  IF cardinality(orphaned) = 0 THEN RETURN ids; END IF;
  UPDATE timers x
  SET held_slot = x.next_run, next_run = NULL
  WHERE x.schedule_id = ANY (orphaned);
  RETURN ARRAY(SELECT i FROM unnest(ids) i WHERE i <> ALL (orphaned));
END $$;

-- Starts schedules again that are no longer orphans, from the slot at which they stopped; the slots
-- since then are missed. Locks stopped timers FOR UPDATE SKIP LOCKED.
CREATE OR REPLACE FUNCTION _release_orphans()
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  ids bigint[] := ARRAY(
    SELECT x.schedule_id FROM timers x WHERE x.held_slot IS NOT NULL FOR UPDATE SKIP LOCKED);
  n int;
BEGIN
  PERFORM _check_shared_change('_release_orphans');
  IF cardinality(ids) = 0 THEN RETURN 0; END IF;
  UPDATE timers x
  SET next_run = x.held_slot, held_slot = NULL
  WHERE x.schedule_id = ANY (ids)
    AND x.schedule_id <> ALL (_find_orphans(ids));
  GET DIAGNOSTICS n = ROW_COUNT;
  IF n > 0 THEN PERFORM _wake_schedulers(); END IF;
  RETURN n;
END $$;

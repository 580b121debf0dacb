-- Deletes up to `max` nodes that left or were lost longer ago than `keep`; returns how many. Jobs,
-- attempts and slots name the node that ran them, so `keep` must be as long as the longest time for
-- which any of these is kept. Forgets the types that were last handled longer ago.
CREATE OR REPLACE FUNCTION prune_nodes(
  keep interval,
  max int DEFAULT 5000,
  now timestamptz DEFAULT NULL
)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  oldest timestamptz := _retention_start(keep, now);
  deleted int;
BEGIN
  PERFORM _check_shared_change('prune_nodes');
  DELETE FROM nodes
  WHERE ctid = ANY (ARRAY(
    SELECT n.ctid
    FROM nodes n
    WHERE n.ended_at < oldest
      AND n.state IN ('left', 'lost')
      AND NOT EXISTS (SELECT FROM claims c WHERE c.epoch = n.epoch)
    ORDER BY n.ended_at
    LIMIT max
    FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS deleted = ROW_COUNT;
  -- A transaction of a handler may have completed a job of a lost node after it was reclaimed.
  DELETE FROM runs r WHERE NOT EXISTS (SELECT FROM nodes n WHERE n.epoch = r.epoch);
  DELETE FROM handled_types
  WHERE ctid = ANY (ARRAY(
    SELECT h.ctid
    FROM handled_types h
    WHERE h.at < _retention_start(keep, now)
    FOR UPDATE SKIP LOCKED));
  -- The last claim of a lost node may have written its places after the node's end.
  DELETE FROM lane_cursors c
  WHERE c.epoch <> 0
    AND NOT EXISTS (SELECT FROM nodes n WHERE n.epoch = c.epoch);
  DELETE FROM tenant_scans s WHERE NOT EXISTS (SELECT FROM nodes n WHERE n.epoch = s.epoch);
  RETURN deleted;
END $$;

-- Deletes these nodes if they have left or are lost, and none of their jobs waits to be reclaimed.
CREATE OR REPLACE FUNCTION _delete_ended_nodes(epochs bigint[])
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM _check_shared_change('_delete_ended_nodes');
  WITH gone AS (
    DELETE FROM nodes n
    WHERE n.epoch = ANY (epochs)
      AND n.state IN ('left', 'lost')
      AND NOT EXISTS (SELECT FROM claims c WHERE c.epoch = n.epoch)
    RETURNING n.epoch)
  DELETE FROM members m
  USING gone g
  WHERE m.epoch = g.epoch;
END $$;

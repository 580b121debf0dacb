-- Deletes up to `max` items that ended, and rebalances that happened, longer ago than `keep`;
-- returns how many rows.
CREATE OR REPLACE FUNCTION prune_items(
  keep interval,
  max int DEFAULT 5000,
  now timestamptz DEFAULT NULL
)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  oldest timestamptz := _retention_start(keep, now);
  deleted int;
  deleted_rebalances int;
BEGIN
  PERFORM _check_shared_change('prune_items');
  DELETE FROM item_claims i
  WHERE i.ctid = ANY (ARRAY(
    SELECT x.ctid
    FROM item_claims x
    WHERE x.ended_at < oldest
    ORDER BY x.ended_at
    LIMIT max
    FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS deleted = ROW_COUNT;
  DELETE FROM rebalances r
  WHERE r.ctid = ANY (ARRAY(
    SELECT x.ctid
    FROM rebalances x
    WHERE x.at < oldest
    LIMIT max - deleted
    FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS deleted_rebalances = ROW_COUNT;
  RETURN deleted + deleted_rebalances;
END $$;

CREATE OR REPLACE FUNCTION _forget_rebalances(ids bigint[])
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM _check_shared_change('_forget_rebalances');
  DELETE FROM rebalances r WHERE r.id = ANY (ids);
END $$;

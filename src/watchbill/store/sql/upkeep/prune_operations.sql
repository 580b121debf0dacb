-- Deletes up to `max` bulk operations that ended longer than `keep` ago, or have waited so long for
-- their items; returns how many.
CREATE OR REPLACE FUNCTION prune_operations(
  keep interval DEFAULT '90 days',
  max int DEFAULT 5000,
  now timestamptz DEFAULT NULL
)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  oldest timestamptz := _retention_start(keep, now);
  deleted int;
BEGIN
  PERFORM _check_shared_change('prune_operations');
  WITH pruned AS (
      DELETE FROM bulk_operations
      WHERE ctid = ANY (ARRAY(
        SELECT o.ctid
        FROM bulk_operations o
        WHERE o.ended_at < oldest
          OR o.state = 'pending' AND o.created_at < oldest
        LIMIT max
        FOR UPDATE SKIP LOCKED))
      RETURNING id),
    items AS (DELETE FROM bulk_items i USING pruned p WHERE i.operation = p.id)
  SELECT count(*) INTO deleted FROM pruned;
  RETURN deleted;
END $$;

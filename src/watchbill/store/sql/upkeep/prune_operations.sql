-- Deletes up to `max` bulk operations that ended longer than `keep` ago; returns how many.
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
  DELETE FROM bulk_operations
  WHERE ctid = ANY (ARRAY(
    SELECT o.ctid
    FROM bulk_operations o
    WHERE o.ended_at < oldest
    ORDER BY o.ended_at
    LIMIT max
    FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS deleted = ROW_COUNT;
  RETURN deleted;
END $$;

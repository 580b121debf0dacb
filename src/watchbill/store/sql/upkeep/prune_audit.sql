-- Deletes up to `max` audit rows that are older than `keep`; returns how many.
CREATE OR REPLACE FUNCTION prune_audit(
  keep interval DEFAULT '400 days',
  max int DEFAULT 5000,
  now timestamptz DEFAULT NULL
)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  oldest timestamptz := _retention_start(keep, now);
  deleted int;
BEGIN
  PERFORM _check_shared_change('prune_audit');
  DELETE FROM audit
  WHERE ctid = ANY (ARRAY(
    SELECT a.ctid
    FROM audit a
    WHERE a.at < oldest
    ORDER BY a.at
    LIMIT max
    FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS deleted = ROW_COUNT;
  RETURN deleted;
END $$;

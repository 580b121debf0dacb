-- Deletes up to `max` chart marks, and up to `max` API keys that were revoked or have expired,
-- longer than `keep` ago; returns how many.
CREATE OR REPLACE FUNCTION prune_web(
  keep interval DEFAULT '1 year',
  max int DEFAULT 1000,
  now timestamptz DEFAULT NULL
)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  oldest timestamptz := _retention_start(keep, now);
  marks int;
  keys int;
BEGIN
  PERFORM _check_shared_change('prune_web');
  DELETE FROM chart_marks
  WHERE ctid = ANY (ARRAY(
    SELECT m.ctid
    FROM chart_marks m
    WHERE m.at < oldest
    ORDER BY m.at
    LIMIT max
    FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS marks = ROW_COUNT;
  DELETE FROM api_keys
  WHERE ctid = ANY (ARRAY(
    SELECT k.ctid
    FROM api_keys k
    WHERE least(k.revoked_at, k.expires_at) < oldest
    LIMIT max
    FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS keys = ROW_COUNT;
  RETURN marks + keys;
END $$;

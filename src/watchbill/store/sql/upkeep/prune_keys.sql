-- Deletes up to `max` keys: idempotency keys whose time window is over, and unique keys that no job
-- has any more. Returns how many. An idempotency key without a window is deleted with its job.
CREATE OR REPLACE FUNCTION prune_keys(max int DEFAULT 5000, now timestamptz DEFAULT NULL)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  t timestamptz := _clock(now);
  deleted int;
  deleted_uniques int;
BEGIN
  PERFORM _check_shared_change('prune_keys');
  DELETE FROM idempotency
  WHERE ctid = ANY (ARRAY(
    SELECT i.ctid
    FROM idempotency i
    WHERE i.expires_at <= t
    ORDER BY i.expires_at
    LIMIT max
    FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS deleted = ROW_COUNT;
  DELETE FROM uniques
  WHERE ctid = ANY (ARRAY(
    SELECT u.ctid
    FROM uniques u
    WHERE CASE u.until
        WHEN 'time' THEN u.expires_at <= t
        ELSE NOT EXISTS (
          SELECT FROM jobs j WHERE j.id = u.job_id AND j.tenant = u.tenant AND j.type = u.type)
      END
    LIMIT max - deleted
    FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS deleted_uniques = ROW_COUNT;
  RETURN deleted + deleted_uniques;
END $$;

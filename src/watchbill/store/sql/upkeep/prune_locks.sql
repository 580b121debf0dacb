-- Deletes up to `max` locks that no caller has held for the time `keep`; returns how many. A later
-- grant of the same name still has a greater fence. Skips rows that are locked.
CREATE OR REPLACE FUNCTION prune_locks(
  keep interval DEFAULT '1 day',
  max int DEFAULT 5000,
  now timestamptz DEFAULT NULL
)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  oldest timestamptz := _clock(now) - keep;
  deleted int;
BEGIN
  PERFORM _check_shared_change('prune_locks');
  DELETE FROM locks
  WHERE ctid = ANY (ARRAY(
    SELECT l.ctid
    FROM locks l
    WHERE (l.holder IS NULL AND l.released_at < oldest)
      OR (l.acquired_at < oldest AND _lock_end(l.epoch, l.expires_at) < oldest)
    LIMIT max
    FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS deleted = ROW_COUNT;
  RETURN deleted;
END $$;

-- Extends a lock to `ttl` from now. Returns false if the caller does not hold the lock under this
-- fence any more. Locks the lock's row, and does not wait for lock_check().
CREATE OR REPLACE FUNCTION lock_renew(
  name text,
  fence bigint,
  ttl interval DEFAULT '30 seconds',
  now timestamptz DEFAULT NULL
)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
BEGIN
  PERFORM _check_shared_change('lock_renew');
  IF (ttl BETWEEN interval '1 second' AND interval '1 day') IS NOT TRUE THEN
    PERFORM _refuse_ttl(ttl);
  END IF;
  UPDATE locks l
  SET expires_at = t + ttl
  WHERE l.name = name
    AND l.fence = fence
    AND l.holder IS NOT NULL
    AND l.epoch IS NULL;
  RETURN FOUND;
END $$;

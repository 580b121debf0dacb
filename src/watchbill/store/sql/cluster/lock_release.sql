-- Releases a lock. Returns false if the lock was not held under this fence. Without a fence,
-- releases it from any holder, and records that in the audit: the holder's next check or renewal
-- fails. A transaction that has checked the lock still commits before the next grant. Locks the
-- lock's row, and does not wait for lock_check().
CREATE OR REPLACE FUNCTION lock_release(
  name text,
  fence bigint DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  held locks;
BEGIN
  PERFORM _check_shared_change('lock_release');
  SELECT l.* INTO held
  FROM locks l
  WHERE l.name = name
    AND l.fence = coalesce(fence, l.fence)
    AND l.holder IS NOT NULL
  FOR NO KEY UPDATE;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM _free_lock(held.name, t);
  IF fence IS NULL THEN
    PERFORM _audit(
      'lock_release', 'lock ' || held.name, NULL,
      jsonb_build_object('holder', held.holder, 'fence', held.fence), t);
  END IF;
  RETURN true;
END $$;

-- Frees a lock whose row the caller has locked, and notifies the callers that wait for the lock.
CREATE OR REPLACE FUNCTION _free_lock(name text, now timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  was_awaited boolean;
BEGIN
  UPDATE locks l
  SET holder = NULL, epoch = NULL, expires_at = NULL, request = NULL, released_at = now
  WHERE l.name = name
  RETURNING l.awaited INTO was_awaited;
  IF was_awaited THEN
    UPDATE locks l SET awaited = false WHERE l.name = name;
    PERFORM pg_notify(_name_lock_channel(), name);
  END IF;
  IF starts_with(name, 'leader/') THEN
    PERFORM pg_notify(_wake_channel(), 'leader');
  END IF;
END $$;

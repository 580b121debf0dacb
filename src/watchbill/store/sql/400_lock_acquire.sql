-- Named locks. A lock is a row with a fence, the number of its last grant. Three rules keep what a
-- holder writes apart from what the next one writes:
--   A grant locks the row FOR UPDATE, then draws the fence. So the fences of a lock only grow.
--   A check locks the row FOR KEY SHARE until the caller commits. So nothing is granted meanwhile.
--   Renewals and releases change no key, so they do not wait for checks.
-- Expiry is judged by the database's clock, and only when another caller wants the lock: a lock
-- that has expired is still its holder's until the next grant.

-- Tries once to acquire a lock for `ttl`. Returns its fence, or NULL if another caller holds it or
-- has its row locked. `request` names this call: if it is sent again, because the reply was lost,
-- it gets the same grant. Call it in a transaction of its own, since others see a grant when it
-- commits. Locks the lock's row; waits only for another first grant of the same name.
CREATE OR REPLACE FUNCTION lock_acquire(
  name text,
  ttl interval DEFAULT '30 seconds',
  holder text DEFAULT NULL,
  request uuid DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN (
    SELECT a.fence
    FROM _acquire_lock(
      lock_acquire.name, lock_acquire.ttl,
      coalesce(lock_acquire.holder, session_user || '/' || pg_backend_pid()), NULL,
      lock_acquire.request, false, coalesce(lock_acquire.now, _clock())) a);
END $$;

-- As lock_acquire(). With an epoch, and without a ttl, the lock lasts as long as that node's lease.
-- If another caller holds the lock, `fence` is NULL, `held_by` names the holder, and `expires_in`
-- says after how many seconds the lock expires if it is not renewed. Returns no row if another
-- transaction has the lock's row locked. With `waits`, the release sends a notification.
CREATE OR REPLACE FUNCTION _acquire_lock(
  name text,
  ttl interval,
  holder text,
  epoch bigint,
  request uuid,
  waits boolean,
  now timestamptz
)
RETURNS TABLE (fence bigint, held_by text, expires_in float8)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
BEGIN
  PERFORM _check_shared_change('lock_acquire');
  -- Asked here and not by functions, since each call of one takes as long as finding the row.
  IF (length(_acquire_lock.name) BETWEEN 1 AND 200) IS NOT TRUE THEN
    RAISE EXCEPTION 'a lock name of % characters is invalid',
      coalesce(length(_acquire_lock.name), 0)
      USING ERRCODE = 'WB003', HINT = 'give a name of 1 to 200 characters';
  ELSIF _acquire_lock.epoch IS NULL
      AND (_acquire_lock.ttl BETWEEN interval '1 second' AND interval '1 day') IS NOT TRUE THEN
    PERFORM _refuse_ttl(_acquire_lock.ttl);
  END IF;
  LOOP
    UPDATE locks l
    SET fence = CASE
        WHEN l.request = _acquire_lock.request AND l.holder IS NOT NULL THEN l.fence
        ELSE _make_fence(_adopt_database())
      END,
      holder = _acquire_lock.holder,
      epoch = _acquire_lock.epoch,
      expires_at = _acquire_lock.now + _acquire_lock.ttl,
      request = _acquire_lock.request,
      acquired_at = _acquire_lock.now
    -- A lock that is held is not locked, so that a try in an open transaction does no harm.
    WHERE l.name = (
      SELECT x.name
      FROM locks x
      WHERE x.name = _acquire_lock.name
        AND (x.holder IS NULL
          OR x.request = _acquire_lock.request
          OR _lock_end(x.epoch, x.expires_at) <= _acquire_lock.now)
      FOR UPDATE SKIP LOCKED)
    RETURNING l.fence INTO fence;
    IF FOUND THEN
      RETURN NEXT;
      RETURN;
    END IF;
    -- An INSERT would wait for a transaction that has changed the row.
    EXIT WHEN EXISTS (SELECT FROM locks l WHERE l.name = _acquire_lock.name);
    -- The first grant of this name: the row first, and then its fence, as for every other grant.
    INSERT INTO locks (name, released_at)
    VALUES (_acquire_lock.name, _acquire_lock.now)
    ON CONFLICT DO NOTHING;
  END LOOP;
  IF _acquire_lock.waits THEN
    UPDATE locks l
    SET awaited = true
    WHERE l.name = (
      SELECT x.name
      FROM locks x
      WHERE x.name = _acquire_lock.name
        AND x.holder IS NOT NULL
        AND NOT x.awaited
      FOR NO KEY UPDATE SKIP LOCKED);
  END IF;
  RETURN QUERY
    SELECT
      NULL::bigint, l.holder,
      extract(epoch FROM _lock_end(l.epoch, l.expires_at) - _acquire_lock.now)::float8
    FROM locks l
    WHERE l.name = _acquire_lock.name
      AND l.holder IS NOT NULL
      AND _lock_end(l.epoch, l.expires_at) > _acquire_lock.now;
END $$;

-- When a lock that is held gives way to other callers: at expires_at, or when its node's lease
-- ends.
CREATE OR REPLACE FUNCTION _lock_end(epoch bigint, expires_at timestamptz)
RETURNS timestamptz
LANGUAGE sql STABLE
RETURN CASE
    WHEN _lock_end.epoch IS NULL THEN _lock_end.expires_at
    ELSE coalesce((
      SELECT b.at + n.lease
      FROM beats b
      JOIN nodes n ON n.epoch = b.epoch
      WHERE b.epoch = _lock_end.epoch), '-infinity')
  END;

-- Where callers that wait for a lock listen; the payload is the name of the lock.
CREATE OR REPLACE FUNCTION _lock_channel()
RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$ SELECT 'watchbill_locks_' || 'locks'::regclass::oid $$;

CREATE OR REPLACE FUNCTION _refuse_ttl(ttl interval)
RETURNS void
LANGUAGE plpgsql IMMUTABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  RAISE EXCEPTION 'a ttl of % is invalid', coalesce(ttl::text, 'NULL')
    USING ERRCODE = 'WB003',
      HINT = 'give 1 second to 1 day: how long the lock of a dead holder stays held';
END $$;

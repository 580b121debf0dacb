-- A named lock is a row with a fence, the number of its last grant. Three rules make sure that a
-- holder does not write any more once the next holder has the lock:
--   A grant locks the row FOR UPDATE, then draws the fence. So the fences of a lock only grow.
--   A check locks the row FOR KEY SHARE until the caller commits. So the lock is not granted to
--   another caller in between.
--   Renewals and releases change no key, so they do not wait for checks.
-- A lock expires by the database's clock, and only when another caller wants it: until the next
-- grant an expired lock still belongs to its holder.

-- Tries once to acquire a lock for `ttl`. Returns its fence; NULL if another caller holds the lock
-- or has its row locked. `request` names this call: if the call is sent again because the reply was
-- lost, it gets the same grant. Call this in a transaction of its own, because others see a grant
-- when it commits. Locks the lock's row; waits only for another first grant of the same name.
CREATE OR REPLACE FUNCTION lock_acquire(
  name text,
  ttl interval DEFAULT '30 seconds',
  holder text DEFAULT NULL,
  request uuid DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  RETURN (
    SELECT a.fence
    FROM _acquire_lock(
      name, ttl,
      coalesce(holder, session_user || '/' || pg_backend_pid()), NULL,
      request, false, now) a);
END $$;

-- Does what lock_acquire() does. With an epoch, and without a ttl, the lock lasts as long as that
-- node's lease. If another caller holds the lock, `fence` is NULL, `held_by` names the holder, and
-- `expires_in` says after how many seconds the lock expires if it is not renewed. Returns no row if
-- another transaction has the lock's row locked. With `waits`, the release of the lock sends a
-- notification.
CREATE OR REPLACE FUNCTION _acquire_lock(
  name text,
  ttl interval,
  holder text,
  epoch bigint,
  request uuid,
  waits boolean,
  now timestamptz DEFAULT NULL
)
RETURNS TABLE (fence bigint, held_by text, expires_in float8)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
BEGIN
  PERFORM _check_shared_change('lock_acquire');
  -- Checks the arguments here and not in functions, because a call of a function takes as long as
  -- finding the row.
  IF (length(name) BETWEEN 1 AND 200) IS NOT TRUE THEN
    RAISE EXCEPTION 'a lock name of % characters is invalid',
      coalesce(length(name), 0)
      USING ERRCODE = 'WB003', HINT = 'give a name of 1 to 200 characters';
  ELSIF epoch IS NULL AND starts_with(name, 'leader/') THEN
    RAISE EXCEPTION 'lock name % is invalid: leader/ is the prefix of the locks of leaders',
      quote_literal(name)
      USING ERRCODE = 'WB003', HINT = 'give another name; elect() acquires these locks for nodes';
  ELSIF epoch IS NULL
      AND (ttl BETWEEN interval '1 second' AND interval '1 day') IS NOT TRUE THEN
    PERFORM _refuse_ttl(ttl);
  END IF;
  LOOP
    UPDATE locks l
    SET fence = CASE
        WHEN l.request = request AND l.holder IS NOT NULL THEN l.fence
        ELSE _make_fence(_adopt_database())
      END,
      holder = _acquire_lock.holder,
      epoch = _acquire_lock.epoch,
      expires_at = t + ttl,
      request = _acquire_lock.request,
      acquired_at = t
    -- If another caller holds the lock, its row is not locked here, so that a try in a long
    -- transaction does no harm.
    WHERE l.name = (
      SELECT x.name
      FROM locks x
      WHERE x.name = name
        AND (x.holder IS NULL
          OR x.request = request
          OR _lock_end(x.epoch, x.expires_at) <= t)
      FOR UPDATE SKIP LOCKED)
    RETURNING l.fence INTO fence;
    IF FOUND THEN
      RETURN NEXT;
      RETURN;
    END IF;
    -- Stops if the row exists, because an INSERT would wait for a transaction that has changed the
    -- row.
    EXIT WHEN EXISTS (SELECT FROM locks l WHERE l.name = name);
    -- For the first grant of this name, inserts the row, and draws the fence in the next round of
    -- the loop, as for every other grant.
    INSERT INTO locks (name, released_at)
    VALUES (name, t)
    ON CONFLICT DO NOTHING;
  END LOOP;
  IF waits THEN
    UPDATE locks l
    SET awaited = true
    WHERE l.name = (
      SELECT x.name
      FROM locks x
      WHERE x.name = name
        AND x.holder IS NOT NULL
        AND NOT x.awaited
      FOR NO KEY UPDATE SKIP LOCKED);
  END IF;
  RETURN QUERY
    SELECT
      NULL::bigint, l.holder,
      extract(epoch FROM _lock_end(l.epoch, l.expires_at) - t)::float8
    FROM locks l
    WHERE l.name = name
      AND l.holder IS NOT NULL
      AND _lock_end(l.epoch, l.expires_at) > t;
END $$;

-- Returns when a lock that is held becomes free for other callers: at expires_at, or when its
-- node's lease ends.
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

-- Returns the channel on which callers that wait for a lock listen. The payload of a notification
-- is the name of the lock.
CREATE OR REPLACE FUNCTION _name_lock_channel()
RETURNS text
LANGUAGE sql STABLE
AS $$ SELECT 'watchbill_locks_' || 'locks'::regclass::oid $$;

CREATE OR REPLACE FUNCTION _refuse_ttl(ttl interval)
RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RAISE EXCEPTION 'a ttl of % is invalid', coalesce(ttl::text, 'NULL')
    USING ERRCODE = 'WB003',
      HINT = 'give 1 second to 1 day: how long the lock of a dead holder stays held';
END $$;

-- Makes parked jobs of these keys ready, as many as may start now. For callers that have ended a
-- job of these keys with complete() or fail(), and for operators that have changed a limit. Locks
-- the states of the keys and waits for them; locks the jobs, and skips those that are locked.
-- Returns how many jobs it made ready.
CREATE OR REPLACE FUNCTION unpark(keys text[], now timestamptz DEFAULT NULL)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM _check_shared_change('unpark');
  RETURN _unpark_keys(keys, _clock(now));
END $$;

CREATE OR REPLACE FUNCTION _unpark_keys(keys text[], t timestamptz)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM _check_isolation('unpark');
  -- Jobs of a bulk may be parked on a key that no claim has met.
  PERFORM _make_limit_states(ARRAY(
    SELECT k
    FROM unnest(keys) k
    WHERE EXISTS (SELECT FROM jobs j WHERE j.wait = 'parked' AND j.wait_key = k)));
  RETURN _unpark(_lock_limit_states(keys), NULL, t);
END $$;

-- Locks the states of keys in the order of the keys, so that two calls do not deadlock. Returns
-- those that have a state.
CREATE OR REPLACE FUNCTION _lock_limit_states(keys text[])
RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  RETURN ARRAY(
    SELECT s.key FROM limit_states s WHERE s.key = ANY (keys) ORDER BY s.key FOR UPDATE);
END $$;

-- As unpark(), for the keys of jobs that have just ended: one entry in `freed` for each job and
-- key. Makes at most as many jobs of a key ready. Wakes workers for the places of queues.
CREATE OR REPLACE FUNCTION _unpark_freed(freed text[], t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  -- The end of a run does not change when a rate allows the next start.
  IF EXISTS (SELECT FROM limits l WHERE l.rates IS NOT NULL AND l.max IS NULL) THEN
    freed := (
      SELECT array_agg(x.key)
      FROM unnest(freed) x(key)
      WHERE NOT EXISTS (
        SELECT
        FROM limits l
        WHERE l.name = _limit_name(x.key)
          AND l.rates IS NOT NULL
          AND l.max IS NULL));
  END IF;
  IF freed IS NULL THEN RETURN; END IF;
  PERFORM _lock_limit_states(
    ARRAY(SELECT x FROM unnest(freed) x WHERE NOT _is_queue_key(x)));
  PERFORM _unpark_places(freed, t);
  PERFORM _wake_workers(_key_queue(q.key))
  FROM (SELECT DISTINCT x FROM unnest(freed) x WHERE _is_queue_key(x)) q(key);
END $$;

-- Makes as many parked jobs of each key ready as it is named in `freed`. The caller has locked the
-- states of the keys.
CREATE OR REPLACE FUNCTION _unpark_places(freed text[], t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM _unpark(array_agg(f.key), array_agg(f.number), t)
  FROM (
    SELECT x.key, count(*)::int AS number
    FROM unnest(freed) x(key)
    WHERE NOT _is_queue_key(x.key)
    GROUP BY 1) f;
END $$;

-- Unparks the keys of jobs that settle() could not settle: perhaps their handlers have ended them
-- in transactions of their own, which lock no keys. The worker calls settle() after their commit.
-- Also locks the keys that the call has `freed`, because all are locked in one order; their jobs
-- are left to _unpark_freed().
CREATE OR REPLACE FUNCTION _unpark_completed(ids uuid[], freed text[], t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  keys text[] := ARRAY(
    SELECT DISTINCT k.key
    FROM (
      SELECT j.limit_keys
      FROM jobs j
      WHERE j.id = ANY (ids)
      UNION ALL
      SELECT f.limit_keys
      FROM unnest(ids) x(id)
      JOIN finished_jobs f ON f.id = x.id AND f.finished_at >= _history_start(x.id)) j
    CROSS JOIN LATERAL unnest(j.limit_keys) k(key));
  locked text[] := _lock_limit_states(
    keys || ARRAY(SELECT x FROM unnest(freed) x WHERE NOT _is_queue_key(x)));
BEGIN
  PERFORM _unpark(ARRAY(SELECT x FROM unnest(locked) x WHERE x = ANY (keys)), NULL, t);
END $$;

-- For an operator's functions, whose transaction may stay open: locks no keys, and leaves them to
-- promote() after the commit. Also if no job waits for these keys: a claim may be about to park
-- one, because it still sees the job that has ended.
CREATE OR REPLACE FUNCTION _announce_freed(freed text[])
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF freed IS NULL THEN RETURN; END IF;
  PERFORM _ask_to_unpark(ARRAY(
    SELECT DISTINCT x FROM unnest(freed) x WHERE NOT _is_queue_key(x)));
  PERFORM _wake_workers(_key_queue(k.key))
  FROM (SELECT DISTINCT x FROM unnest(freed) x) k(key)
  WHERE _is_queue_key(k.key);
END $$;

-- Leaves keys to the next promote(), and wakes a node to call it. The notification names no key:
-- every role of the database hears it.
CREATE OR REPLACE FUNCTION _ask_to_unpark(keys text[])
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF cardinality(keys) = 0 THEN RETURN; END IF;
  INSERT INTO freed_keys (key) SELECT unnest(keys);
  PERFORM pg_notify(_wake_channel(), 'unpark');
END $$;

-- Makes parked jobs ready of the keys in freed_keys, at most so many keys, and asks for another
-- call if there may be more. Waits for the states of the keys, so the caller must have locked no
-- state before, and no job that somebody waits for who has locked a state: jobs that have expired
-- are skipped by all of these.
CREATE OR REPLACE FUNCTION _unpark_freed_keys(max int, t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  keys text[];
BEGIN
  WITH taken AS (
    DELETE FROM freed_keys f
    WHERE f.ctid = ANY (ARRAY(
      SELECT x.ctid FROM freed_keys x LIMIT max FOR UPDATE SKIP LOCKED))
    RETURNING f.key)
  SELECT array_agg(taken.key) INTO keys FROM taken;
  IF keys IS NULL THEN RETURN; END IF;
  PERFORM _unpark_keys(keys, t);
  IF cardinality(keys) = max THEN PERFORM pg_notify(_wake_channel(), 'unpark'); END IF;
END $$;

-- Makes parked jobs of these keys ready, as many as may start now, and with `numbers` of each key
-- at most its number, or one for each new place of its rates. Of a key without a limit it makes a
-- thousand ready and asks the nodes for the next call, so that a limit which an operator clears
-- does not lead to a long transaction. If the jobs of a key are of several lanes, they take turns.
-- Of an ordered key only the first job is made ready. The caller has locked the states of the keys
-- in an earlier statement; this locks the jobs, and skips those that are locked.
CREATE OR REPLACE FUNCTION _unpark(keys text[], numbers int[], t timestamptz)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  found record;
  ready int := 0;
BEGIN
  IF NOT EXISTS (SELECT FROM jobs j WHERE j.wait = 'parked' AND j.wait_key = ANY (keys)) THEN
    -- promote() calls again at this time otherwise.
    IF numbers IS NULL OR 0 = ANY (numbers) THEN
      UPDATE limit_states s SET next_at = NULL WHERE s.key = ANY (keys) AND s.next_at IS NOT NULL;
    END IF;
    RETURN 0;
  END IF;
  SELECT * INTO found FROM _find_open_keys(keys, numbers, t);
  IF found.heads IS NOT NULL THEN ready := _unpark_heads(found.heads); END IF;
  IF found.open_keys IS NOT NULL THEN
    ready := ready + _unpark_next(found.open_keys, found.open_numbers);
  END IF;
  IF found.rated IS NOT NULL THEN
    PERFORM _count_starts(
      found.rated, array_fill(NULL::int, ARRAY[cardinality(found.rated)]), t);
  END IF;
  IF ready > 0 THEN
    PERFORM _wake_workers('');
    PERFORM _ask_to_unpark(ARRAY(
      SELECT k
      FROM unnest(found.unlimited) k
      WHERE (SELECT true FROM jobs j WHERE j.wait = 'parked' AND j.wait_key = k LIMIT 1)));
  END IF;
  RETURN ready;
END $$;

-- Which of the keys have a place, and for how many jobs. Each result is NULL if there are none.
--   heads       of ordered keys with a place, the job that may start
--   rated       keys with a rate, with a place or not
--   unlimited   keys of which any number may start
CREATE OR REPLACE FUNCTION _find_open_keys(
  keys text[],
  numbers int[],
  t timestamptz,
  OUT open_keys text[],
  OUT open_numbers int[],
  OUT heads uuid[],
  OUT rated text[],
  OUT unlimited text[]
)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
BEGIN
  SELECT
    array_agg(p.key) FILTER (WHERE p.places > 0 AND NOT p.is_ordered),
    array_agg(p.places) FILTER (WHERE p.places > 0 AND NOT p.is_ordered),
    array_agg(p.head) FILTER (WHERE p.places > 0 AND p.is_ordered),
    array_agg(p.key) FILTER (WHERE p.new_places IS NOT NULL),
    array_agg(p.key) FILTER (WHERE p.is_unlimited)
  INTO open_keys, open_numbers, heads, rated, unlimited
  FROM (
    SELECT
      k.key, k.is_ordered, k.head, k.new_places,
      k.places = 2147483647 AND numbers IS NULL AS is_unlimited,
      CASE
        WHEN numbers IS NOT NULL THEN least(k.places, greatest(numbers[k.n], k.new_places), 10000)
        WHEN k.places = 2147483647 THEN 1000
        -- All in this call: a ready job holds no place until it is claimed. So a second call would
        -- find the same places free, and make too many jobs ready.
        ELSE least(k.places, 10000)
      END AS places
    FROM unnest(_count_places(keys, '{}', t)) WITH ORDINALITY
      k(places, new_places, is_locked, is_ordered, key, head, n)) p;
END $$;

-- Makes the first jobs of ordered keys ready.
CREATE OR REPLACE FUNCTION _unpark_heads(heads uuid[])
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  tids tid[] := ARRAY(
    SELECT j.ctid
    FROM jobs j
    WHERE j.id = ANY (heads)
      AND j.wait = 'parked'
      AND j.wait_key = j.order_key
      AND j.fence = 0
    FOR UPDATE SKIP LOCKED);
BEGIN
  PERFORM _make_ready(tids);
  RETURN cardinality(tids);
END $$;

-- Makes the next jobs of these keys ready, so many of each key. A key has a cursor if its jobs are
-- in lanes; then these take turns.
CREATE OR REPLACE FUNCTION _unpark_next(keys text[], numbers int[])
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  cursors int[] := ARRAY(
    SELECT (SELECT s.lane_cursor FROM limit_states s WHERE s.key = k.key)
    FROM unnest(keys) k(key));
  tids tid[] := ARRAY(
    SELECT w.ctid
    FROM unnest(keys, numbers, cursors) k(key, number, cursor)
    CROSS JOIN LATERAL (
      SELECT j.ctid
      FROM jobs j
      WHERE j.wait = 'parked'
        AND j.wait_key = k.key
      ORDER BY j.lane, j.priority DESC, j.run_at, j.id
      LIMIT k.number
      FOR UPDATE SKIP LOCKED) w
    WHERE k.cursor IS NULL);
BEGIN
  PERFORM _make_ready(tids);
  RETURN cardinality(tids) + (
    SELECT _unpark_turns(array_agg(k.key), array_agg(k.number), array_agg(k.cursor))
    FROM unnest(keys, numbers, cursors) k(key, number, cursor)
    WHERE k.cursor IS NOT NULL);
END $$;

-- Makes jobs ready that are parked because of these limit keys, so many of each key. If the jobs of
-- a key are of several lanes, the lanes take turns, beginning behind the lane that was served last
-- (`cursors`, one lane for each key): it takes one job of each such key, and repeats.
CREATE OR REPLACE FUNCTION _unpark_turns(keys text[], numbers int[], cursors int[])
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  ready int := 0;
  picked record;
BEGIN
  WHILE cardinality(keys) > 0 LOOP
    SELECT
      coalesce(array_agg(p.ctid), '{}') AS tids,
      array_agg(p.key) FILTER (WHERE p.lane <> p.cursor) AS moved_keys,
      array_agg(p.lane) FILTER (WHERE p.lane <> p.cursor) AS moved_lanes,
      array_agg(p.key) FILTER (WHERE p.has_turns) AS next_keys,
      array_agg(p.number - 1) FILTER (WHERE p.has_turns) AS next_numbers,
      array_agg(p.lane) FILTER (WHERE p.has_turns) AS next_cursors
    INTO picked
    FROM (
      SELECT k.key, k.number, k.cursor, k.has_turns, w.ctid, w.lane
      FROM (
        SELECT
          x.*,
          x.number > 1 AND (
            SELECT min(j.lane) < max(j.lane)
            FROM jobs j
            WHERE j.wait = 'parked'
              AND j.wait_key = x.key) AS has_turns
        FROM unnest(keys, numbers, cursors) x(key, number, cursor)
        OFFSET 0) k
      CROSS JOIN LATERAL (
        SELECT y.ctid, y.lane
        FROM (VALUES (k.cursor, 2147483647), (-2147483648, k.cursor)) part(lower, last)
        CROSS JOIN LATERAL (
          SELECT j.ctid, j.lane
          FROM jobs j
          WHERE j.wait = 'parked'
            AND j.wait_key = k.key
            AND j.lane > part.lower
            AND j.lane <= part.last
          ORDER BY j.lane, j.priority DESC, j.run_at, j.id
          LIMIT CASE WHEN k.has_turns THEN 1 ELSE k.number END
          FOR UPDATE SKIP LOCKED) y
        LIMIT CASE WHEN k.has_turns THEN 1 ELSE k.number END) w) p;
    PERFORM _make_ready(picked.tids);
    UPDATE limit_states s
    SET lane_cursor = x.lane
    FROM (
      SELECT m.key, max(m.lane) AS lane
      FROM unnest(picked.moved_keys, picked.moved_lanes) m(key, lane)
      GROUP BY 1) x
    WHERE s.key = x.key;
    ready := ready + cardinality(picked.tids);
    keys := picked.next_keys;
    numbers := picked.next_numbers;
    cursors := picked.next_cursors;
  END LOOP;
  RETURN ready;
END $$;

-- Makes parked jobs ready. Does not look at their run_at: only jobs that were due are parked, and
-- if that is of the future now, the clock was set back. The caller has locked them.
CREATE OR REPLACE FUNCTION _make_ready(tids tid[])
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  UPDATE jobs j
  SET wait = NULL, wait_key = NULL, lane = _find_ready_lane(j.queue, j.route_key, j.lane)
  WHERE j.ctid = ANY (tids);
END $$;

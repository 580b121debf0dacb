-- Looks for jobs that are parked although their key has a place, after the key `after`: the call
-- that should have made them ready was lost, or the job that was made ready is of a queue that no
-- node serves. Returns the last key that it looked at, NULL at the end. Deletes the states of keys
-- that are no longer used. Skips keys whose state is locked. Also lets claims find jobs whose lane
-- is that of a fair queue which is no longer fair.
CREATE OR REPLACE FUNCTION sweep_limits(
  after text DEFAULT '',
  max int DEFAULT 1000,
  now timestamptz DEFAULT NULL
)
RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  t timestamptz := _clock(now);
  waiting text[] := ARRAY(
    WITH RECURSIVE k AS (
      SELECT after COLLATE "C" AS key
      UNION ALL
      SELECT n.wait_key
      FROM k
      CROSS JOIN LATERAL (
        SELECT j.wait_key
        FROM jobs j
        WHERE j.wait = 'parked'
          AND j.wait_key > k.key
        ORDER BY j.wait_key
        LIMIT 1) n)
    SELECT k.key FROM k OFFSET 1 LIMIT max);
BEGIN
  PERFORM _check_shared_change('sweep_limits');
  PERFORM _check_isolation('sweep_limits');
  PERFORM _clear_lanes(max);
  PERFORM _make_limit_states(waiting);
  PERFORM _unpark(
    ARRAY(
      SELECT s.key
      FROM limit_states s
      WHERE s.key = ANY (waiting)
      FOR UPDATE SKIP LOCKED),
    NULL, t);
  DELETE FROM limit_states s
  WHERE s.ctid = ANY (ARRAY(
    SELECT x.ctid
    FROM limit_states x
    WHERE x.key > after
      -- A claim that began before this call reads an older clock, and must not find a new state.
      AND coalesce(x.counts_until, '-infinity') <= t - interval '1 minute'
      -- The state of a queue stays: the end of a run reads it to learn whether jobs hold places.
      AND NOT EXISTS (
        SELECT
        FROM queues q
        WHERE q.name = _key_queue(x.key)
          AND _is_queue_key(x.key)
          AND q.max IS NOT NULL)
      AND NOT EXISTS (SELECT FROM holds h WHERE h.key = x.key)
      AND NOT EXISTS (SELECT FROM jobs j WHERE j.wait = 'parked' AND j.wait_key = x.key)
    ORDER BY x.key
    LIMIT max
    FOR UPDATE SKIP LOCKED));
  RETURN waiting[max];
END $$;

-- Ready jobs of plain queues in a lane of a share or a token, which no claim reads: their enqueue
-- committed after the queue was declared plain, or they have waited until now.
CREATE OR REPLACE FUNCTION _find_jobs_in_wrong_lanes(max int)
RETURNS tid[]
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  RETURN ARRAY(
    SELECT x.ctid
    FROM queues q
    CROSS JOIN (VALUES (0::smallint), (1::smallint)) c(class)
    CROSS JOIN LATERAL (
      SELECT j.ctid
      FROM jobs j
      WHERE j.queue = q.name
        AND j.class = c.class
        AND j.lane > 0
        AND j.wait IS NULL
        AND j.fence = 0
      LIMIT max) x
    WHERE q.lanes = 'none'
    LIMIT max);
END $$;

-- Gives jobs of plain queues the lane that all nodes read. Locks them; skips those that are locked.
CREATE OR REPLACE FUNCTION _clear_lanes(max int)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  tids tid[] := _find_jobs_in_wrong_lanes(max);
BEGIN
  IF cardinality(tids) = 0 THEN RETURN; END IF;
  UPDATE jobs j
  SET lane = 0
  WHERE j.ctid = ANY (ARRAY(
    SELECT x.ctid
    FROM jobs x
    WHERE x.ctid = ANY (tids)
      AND x.lane > 0
      AND x.wait IS NULL
      AND x.fence = 0
    FOR UPDATE SKIP LOCKED));
  PERFORM _wake_workers('');
END $$;

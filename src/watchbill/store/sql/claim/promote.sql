-- Ends jobs that have expired, and makes delayed jobs ready that are due, and parked jobs whose
-- rate allows the next start or whose key is in freed_keys. Returns when to call it again: when the
-- next one is due, or in a second if it had to skip one that is locked. Starts of rates wait for
-- each other, a fifth of a second at most, and a fifth of the mean time between two starts: ten
-- keys cost little more than one if one call and one claim serve them all. Locks the states of the
-- keys and the jobs. `since` is explained at unblock().
CREATE OR REPLACE FUNCTION promote(
  max int DEFAULT 1000,
  since timestamptz DEFAULT '-infinity',
  now timestamptz DEFAULT NULL
)
RETURNS timestamptz
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  -- A variable, because an index condition cannot call a volatile function.
  t timestamptz := _clock(now);
  n int;
  keys text[];
  next_expiry timestamptz;
BEGIN
  IF _may_be_bound() THEN PERFORM _check_shared_change('promote'); END IF;
  PERFORM _check_isolation('promote');
  next_expiry := _expire_jobs(max, since, t);
  IF EXISTS (SELECT FROM freed_keys) THEN PERFORM _unpark_freed_keys(max, t); END IF;
  UPDATE jobs j
  SET wait = NULL, wait_key = NULL, lane = _find_ready_lane(j.queue, j.route_key, j.lane)
  WHERE j.ctid = ANY (ARRAY(
    SELECT d.ctid
    FROM jobs d
    WHERE d.wait = 'delayed'
      AND d.run_at <= t
      AND d.run_at >= since
    ORDER BY d.run_at
    LIMIT max
    FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS n = ROW_COUNT;
  IF n > 0 THEN PERFORM _wake_workers(''); END IF;
  IF EXISTS (SELECT FROM limit_states s WHERE s.next_at <= t) THEN
    keys := ARRAY(
      SELECT s.key
      FROM limit_states s
      WHERE s.next_at <= t
      ORDER BY s.next_at
      LIMIT max
      FOR UPDATE SKIP LOCKED);
    PERFORM _unpark(keys, array_fill(0, ARRAY[cardinality(keys)]), t);
  END IF;
  RETURN least(_find_next_delayed(since, n = max, t), _find_next_start(t), next_expiry);
END $$;

-- When the next delayed job is due. `is_full`: promote() has made as many jobs ready as it may, so
-- it may have left some that are due. Otherwise a due job that is left was locked, and the caller
-- would call again at once: it waits for a second.
CREATE OR REPLACE FUNCTION _find_next_delayed(since timestamptz, is_full boolean, t timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
DECLARE
  next_due timestamptz := (
    SELECT j.run_at
    FROM jobs j
    WHERE j.wait = 'delayed'
      AND j.run_at >= since
    ORDER BY j.run_at
    LIMIT 1);
BEGIN
  IF NOT is_full AND next_due <= t THEN
    next_due := least(t + interval '1 second', (
      SELECT j.run_at
      FROM jobs j
      WHERE j.wait = 'delayed'
        AND j.run_at > t
      ORDER BY j.run_at
      LIMIT 1));
  END IF;
  RETURN next_due;
END $$;

-- When the next start of a rate is due, put off a little if others follow soon.
CREATE OR REPLACE FUNCTION _find_next_start(t timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN coalesce(
    (
      SELECT min(greatest(s.next_at, t + least(
        interval '200 milliseconds',
        (SELECT min(w.span / w.most) / 5 FROM _read_windows(l.rates, NULL) w))))
      FROM limit_states s
      LEFT JOIN limits l ON l.name = s.name
      WHERE s.next_at <= t + interval '200 milliseconds'),
    (SELECT min(s.next_at) FROM limit_states s WHERE s.next_at IS NOT NULL));
END $$;

-- Makes delayed jobs ready that are due, and parked jobs whose rate allows the next start. Returns
-- when to call it again: when the next one is due, or in a second if it had to skip one that is
-- locked. Starts of rates wait for each other, a fifth of their step and a fifth of a second at
-- most: ten keys cost little more than one if one call and one claim serve them all. Locks the jobs
-- and the states of the keys. `since` is explained at unblock().
CREATE OR REPLACE FUNCTION promote(
  max int DEFAULT 1000,
  since timestamptz DEFAULT '-infinity',
  now timestamptz DEFAULT NULL
)
RETURNS timestamptz
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
  -- A variable, because an index condition cannot call a volatile function.
  t timestamptz := _clock(promote.now);
  n int;
  next_due timestamptz;
  next_start timestamptz;
BEGIN
  IF _may_be_bound() THEN PERFORM _check_shared_change('promote'); END IF;
  PERFORM _check_isolation('promote');
  UPDATE jobs j
  SET wait = NULL, lane = _find_ready_lane(j.queue, j.route_key, j.lane)
  WHERE j.ctid = ANY (ARRAY(
    SELECT d.ctid
    FROM jobs d
    WHERE d.wait = 'delayed'
      AND d.run_at <= t
      AND d.run_at >= promote.since
    ORDER BY d.run_at
    LIMIT max
    FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS n = ROW_COUNT;
  IF n > 0 THEN PERFORM _wake_workers(''); END IF;
  next_due := (
    SELECT j.run_at
    FROM jobs j
    WHERE j.wait = 'delayed'
      AND j.run_at >= promote.since
    ORDER BY j.run_at
    LIMIT 1);
  -- A due job that is left was locked: the caller would call again at once.
  IF n < max AND next_due <= t THEN
    next_due := least(t + interval '1 second', (
      SELECT j.run_at
      FROM jobs j
      WHERE j.wait = 'delayed'
        AND j.run_at > t
      ORDER BY j.run_at
      LIMIT 1));
  END IF;
  IF EXISTS (SELECT FROM limit_states s WHERE s.next_at <= t) THEN
    PERFORM _unpark(
      ARRAY(
        SELECT s.key
        FROM limit_states s
        WHERE s.next_at <= t
        ORDER BY s.next_at
        LIMIT max
        FOR UPDATE SKIP LOCKED),
      NULL, t);
  END IF;
  next_start := coalesce(
    (
      SELECT min(greatest(s.next_at, t + least(
        interval '200 milliseconds',
        _rate_step(l.count, l.per, l.burst) / 5 * interval '1 microsecond')))
      FROM limit_states s
      LEFT JOIN limits l ON l.name = s.name
      WHERE s.next_at <= t + interval '200 milliseconds'),
    (SELECT min(s.next_at) FROM limit_states s WHERE s.next_at IS NOT NULL));
  RETURN least(next_due, next_start);
END $$;

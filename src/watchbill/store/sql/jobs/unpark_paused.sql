-- Queues jobs again that were parked by a pause that has ended. resume() does this, and nodes do it
-- as a chore, because a claim may park jobs during a resume(). Locks the jobs; skips locked ones.
CREATE OR REPLACE FUNCTION unpark_paused(now timestamptz DEFAULT NULL)
RETURNS int
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  t timestamptz := _clock(now);
  n int;
  at_once boolean;
  due timestamptz;
BEGIN
  PERFORM _check_shared_change('unpark_paused');
  WITH u AS (
    UPDATE jobs j
    SET wait = CASE WHEN j.run_at > t THEN 'delayed' END,
      wait_key = NULL,
      lane = _find_ready_lane(j.queue, j.route_key, j.lane)
    WHERE j.ctid = ANY (ARRAY(
      SELECT x.ctid
      FROM _find_unpaused_keys() k
      JOIN jobs x ON x.wait = 'paused' AND x.wait_key = k.key
      FOR UPDATE OF x SKIP LOCKED))
    RETURNING j.run_at)
  SELECT count(*), bool_or(u.run_at <= t), min(u.run_at) FILTER (WHERE u.run_at > t)
  INTO n, at_once, due
  FROM u;
  IF at_once THEN PERFORM _wake_workers(''); END IF;
  PERFORM _wake_promoters(due, t);
  RETURN n;
END $$;

-- Lists the wait keys of paused jobs to which no pause applies any more.
CREATE OR REPLACE FUNCTION _find_unpaused_keys()
RETURNS TABLE (key text)
LANGUAGE sql STABLE
AS $$
  SELECT k.key
  FROM _find_wait_keys('paused') k
  WHERE NOT EXISTS (
    SELECT
    FROM pauses p
    WHERE p.type = k.type
      AND (p.queue IS NULL OR p.queue = k.queue))
$$;

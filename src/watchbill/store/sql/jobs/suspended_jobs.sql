-- Makes suspended jobs among `ids` ready of which a step waits for jobs that have all ended, and
-- returns them as `ready`. `others` are waiters that another transaction has locked: it may be
-- suspending them, so they have to be checked again.
CREATE OR REPLACE FUNCTION _wake_step_waiters(
  ids uuid[], t timestamptz, OUT ready uuid[], OUT others uuid[]
)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  waiters uuid[] := ARRAY(
    SELECT j.id
    FROM jobs j
    WHERE j.id = ANY (ids)
      AND j.wait IS DISTINCT FROM 'blocked'
      AND EXISTS (SELECT FROM step_waits w WHERE w.job_id = j.id AND w.tenant = j.tenant));
  locked uuid[];
BEGIN
  locked := ARRAY(
    SELECT j.id
    FROM jobs j
    WHERE j.id = ANY (waiters)
    ORDER BY j.id
    FOR NO KEY UPDATE SKIP LOCKED);
  -- In a statement of its own, which sees what was committed before the locks.
  ready := ARRAY(
    SELECT j.id
    FROM jobs j
    WHERE j.id = ANY (locked)
      AND j.fence = 0
      AND _is_suspended(j.wait, j.wait_key)
      AND _find_wake_time(j.id, j.tenant, t) <= t);
  PERFORM _make_suspended_ready(j, t) FROM jobs j WHERE j.id = ANY (ready);
  others := ARRAY(SELECT w FROM unnest(waiters) w WHERE w <> ALL (locked));
END $$;

-- Makes a suspended job ready. The caller has locked it.
CREATE OR REPLACE FUNCTION _make_suspended_ready(j jobs, t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  UPDATE jobs x
  SET wait = NULL,
    wait_key = NULL,
    run_at = t,
    lane = _find_ready_lane(x.queue, x.route_key, x.lane)
  WHERE x.id = j.id;
  PERFORM _wake_workers(j.queue);
END $$;

-- Ends the sleeps of a suspended job and its pauses between two tries of a step now, and makes the
-- job ready. Returns how many it has ended; NULL if the job is not suspended. A job that only waits
-- for something else stays suspended. Locks the job.
CREATE OR REPLACE FUNCTION wake(id uuid, now timestamptz DEFAULT NULL)
RETURNS int
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  j jobs;
  number int;
BEGIN
  SELECT * INTO j FROM jobs x WHERE x.id = id FOR UPDATE;
  IF NOT FOUND OR j.fence <> 0 OR NOT _is_suspended(j.wait, j.wait_key) THEN RETURN NULL; END IF;
  UPDATE steps s
  SET wake_at = least(s.wake_at, t)
  WHERE s.job_id = j.id
    AND s.tenant = j.tenant
    AND s.ended_at IS NULL
    AND (s.kind = 'sleep' OR s.state = 'retrying');
  GET DIAGNOSTICS number = ROW_COUNT;
  IF number = 0 THEN RETURN 0; END IF;
  PERFORM _make_suspended_ready(j, t);
  PERFORM _audit('wake', 'job ' || id, j.tenant, NULL, t);
  RETURN number;
END $$;

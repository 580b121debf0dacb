-- Lets a running job begin anew with another payload: deletes its steps, but not its signals, and
-- gives it all its attempts. Keys of limits, order and uniqueness stay as they are. Then end the
-- run as `suspended` without a step: the job is ready again at once. Returns false if the job has
-- another fence now. Locks the job.
CREATE OR REPLACE FUNCTION restart(
  id uuid,
  fence bigint,
  payload jsonb
)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  j jobs;
BEGIN
  PERFORM _check_isolation('restart');
  SELECT * INTO j
  FROM jobs x
  WHERE x.id = id
    AND x.fence = fence
    AND x.fence <> 0
  FOR UPDATE;
  IF NOT FOUND THEN RETURN false; END IF;
  IF jsonb_typeof(payload) IS DISTINCT FROM 'object' THEN
    RAISE EXCEPTION 'payload of job % is invalid', id
      USING ERRCODE = 'WB003', HINT = 'give an object with a value for each parameter';
  END IF;
  DELETE FROM steps s WHERE s.job_id = id AND s.tenant = j.tenant;
  DELETE FROM step_waits w WHERE w.job_id = id AND w.tenant = j.tenant;
  UPDATE jobs x SET payload = payload, attempt = 0, lost = 0 WHERE x.id = id;
  RETURN true;
END $$;

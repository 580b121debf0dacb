-- Returns when a job that waits in its steps is due: the earliest wake time of these steps, but
-- not before `t`. The caller has locked the job.
CREATE OR REPLACE FUNCTION _find_wake_time(job_id uuid, tenant text, t timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
BEGIN
  RETURN greatest(t, (
    SELECT min(s.wake_at)
    FROM steps s
    WHERE s.job_id = job_id
      AND s.tenant = tenant
      AND s.ended_at IS NULL));
END $$;

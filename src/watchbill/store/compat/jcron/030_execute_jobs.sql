-- Runs the command of a job in this session: for the slot that is due, or as the next attempt of a
-- run that has failed, or else as a run outside its slots. An error of the command is recorded and
-- not raised. Locks the timer.
CREATE OR REPLACE FUNCTION @facade@.@prefix@execute_job(
  p_job_id int,
  p_search_path text DEFAULT current_setting('search_path')
)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  t timestamptz := _clock();
  s schedules := @facade@.@prefix@_jcron_job(p_job_id);
  due boolean;
  j jobs;
BEGIN
  SELECT x.next_run <= t INTO due FROM timers x WHERE x.schedule_id = p_job_id FOR UPDATE;
  IF due THEN PERFORM _write_firings(_decide_firings(ARRAY[s.id], 1, t), t); END IF;
  SELECT x.*
  INTO j
  FROM slots l
  JOIN jobs x ON x.id = l.job_id
  WHERE l.schedule_id = p_job_id
    AND l.outcome IS NULL
    AND l.job_id IS NOT NULL
    AND x.type = 'watchbill.sql'
    AND x.fence = 0
    AND x.wait IS DISTINCT FROM 'blocked'
  ORDER BY x.created_at
  LIMIT 1
  FOR UPDATE OF x SKIP LOCKED;
  IF FOUND THEN
    PERFORM _execute_sql_job(j, p_search_path, t);
  ELSE
    PERFORM execute_schedule(s.name, s.tenant, path => p_search_path);
  END IF;
END $$;

-- Runs the commands of all jobs that are due.
CREATE OR REPLACE FUNCTION @facade@.@prefix@execute_due_jobs(
  p_search_path text DEFAULT current_setting('search_path')
)
RETURNS TABLE (job_id int, job_name varchar, status text, execution_time_ms numeric)
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  SELECT
    s.id::int,
    s.name::varchar,
    CASE WHEN e.outcome = 'succeeded' THEN 'SUCCESS' ELSE 'ERROR: ' || e.error END,
    round(extract(epoch FROM e.duration) * 1000, 3)
  FROM execute_due(path => p_search_path, tenant => _session_tenant()) e
  JOIN schedules s ON s.name = e.schedule AND s.tenant = _session_tenant()
$$;

-- Runs a job, unless it is running already: then raises a notice and returns false.
CREATE OR REPLACE FUNCTION @facade@.@prefix@try_execute_job(
  job_id int,
  p_search_path text DEFAULT current_setting('search_path')
)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_variable
BEGIN
  PERFORM @facade@.@prefix@_jcron_job(job_id);
  PERFORM FROM timers x WHERE x.schedule_id = job_id FOR UPDATE SKIP LOCKED;
  IF NOT FOUND OR EXISTS (
      SELECT
      FROM slots l
      JOIN jobs j ON j.id = l.job_id
      WHERE l.schedule_id = job_id
        AND l.outcome IS NULL
        AND l.job_id IS NOT NULL
        AND j.fence <> 0) THEN
    RAISE NOTICE 'Job % already running', job_id;
    RETURN false;
  END IF;
  PERFORM @facade@.@prefix@execute_job(job_id, p_search_path);
  RETURN true;
END $$;

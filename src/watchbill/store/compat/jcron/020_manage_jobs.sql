CREATE OR REPLACE FUNCTION @facade@.@prefix@add_job(
  p_name varchar,
  p_pattern varchar,
  p_description text DEFAULT NULL,
  p_timezone varchar DEFAULT 'UTC',
  p_command text DEFAULT NULL
)
RETURNS int
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  added int;
BEGIN
  INSERT INTO @facade@.@prefix@scheduled_jobs (name, cron_pattern, description, timezone, command)
  VALUES (p_name, p_pattern, p_description, p_timezone, p_command)
  RETURNING id INTO added;
  RETURN added;
END $$;

-- Changes the pattern of a job. Its next run is the first slot of the new pattern from now on.
CREATE OR REPLACE FUNCTION @facade@.@prefix@update_job_pattern(
  p_job_id int,
  p_new_pattern varchar
)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  job schedules := @facade@.@prefix@_jcron_job(p_job_id);
BEGIN
  PERFORM @facade@.@prefix@_jcron_check_pattern(p_new_pattern, job.tz);
  PERFORM update_schedule(
    job.name, jsonb_build_object('pattern', p_new_pattern), _session_tenant());
END $$;

-- Returns the schedule of a job; raises if the session's tenant has no job with this id.
CREATE OR REPLACE FUNCTION @facade@.@prefix@_jcron_job(p_job_id int)
RETURNS schedules
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  found_job schedules;
BEGIN
  SELECT s.*
  INTO found_job
  FROM schedules s
  WHERE s.id = p_job_id
    AND s.tenant = _session_tenant();
  IF NOT FOUND THEN
    RAISE EXCEPTION 'Job % not found', p_job_id USING ERRCODE = 'no_data_found';
  END IF;
  RETURN found_job;
END $$;

CREATE OR REPLACE FUNCTION @facade@.@prefix@validate_pattern(pattern text)
RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN is_valid_cron(pattern, 'UTC');

-- Returns the jobs that are due and that no other session has locked. Locks their timers until the
-- transaction ends, so that no other session runs these jobs.
CREATE OR REPLACE FUNCTION @facade@.@prefix@get_due_jobs()
RETURNS TABLE (job_id int, job_name varchar, pattern varchar, next_run timestamptz)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  t timestamptz := _clock();
BEGIN
  RETURN QUERY
    SELECT s.id::int, s.name::varchar, s.pattern::varchar, x.next_run
    FROM timers x
    JOIN schedules s ON s.id = x.schedule_id
    WHERE x.next_run <= t
      AND s.enabled
      AND s.tenant = _session_tenant()
    ORDER BY x.next_run
    FOR UPDATE OF x SKIP LOCKED;
END $$;

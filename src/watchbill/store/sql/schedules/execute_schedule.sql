-- Runs the SQL command of one schedule in this session, without a worker, even if the schedule is
-- disabled. (run_schedule() enqueues a job for a worker instead.) The job and its row in `slots`
-- look as if run_schedule() had made them. Returns no row if there is no such schedule. `path` is
-- the search_path of the command. Raises WB011 if `overlap` is `skip` and a job of the schedule has
-- not ended. Locks the timer.
CREATE OR REPLACE FUNCTION execute_schedule(
  name text,
  tenant text DEFAULT _session_tenant(),
  overlap text DEFAULT 'allow',
  now timestamptz DEFAULT NULL,
  path text DEFAULT current_setting('search_path')
)
RETURNS TABLE (
  schedule text,
  slot timestamptz,
  outcome text,
  duration interval,
  error text
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  s schedules;
  job uuid;
  j jobs;
BEGIN
  s := _lock_schedule_to_run(
    (SELECT x.id FROM schedules x WHERE x.tenant = tenant AND x.name = name), t);
  IF s.id IS NULL THEN RETURN; END IF;
  IF s.command IS NULL THEN
    RAISE EXCEPTION 'schedule % has no SQL command', quote_literal(s.name)
      USING ERRCODE = 'WB003', HINT = 'run_schedule() makes a job that a worker runs';
  ELSIF overlap NOT IN ('allow', 'skip') THEN
    RAISE EXCEPTION 'overlap % is invalid: it must be allow or skip', quote_nullable(overlap)
      USING ERRCODE = 'WB003', HINT = 'a command that runs now cannot wait for another';
  END IF;
  job := _run_schedule_outside_slots(s, 'hand', NULL, t, overlap);
  SELECT * INTO j FROM jobs x WHERE x.id = job;
  PERFORM _audit(
    'execute_schedule', 'schedule ' || name, tenant, jsonb_build_object('job', job), t);
  schedule := s.name;
  slot := j.created_at;
  SELECT x.outcome, x.duration, x.error
  INTO outcome, duration, error
  FROM _execute_sql_job(j, path, t) x;
  RETURN NEXT;
END $$;

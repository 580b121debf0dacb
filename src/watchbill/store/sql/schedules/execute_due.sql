-- Runs schedules of SQL commands without a worker: let psql, or another cron, call this once a
-- minute. Calls tick(), then runs the commands that wait, each in a subtransaction, which is undone
-- if the command fails. `path` is the search_path of the commands. A function cannot limit their
-- time, so set statement_timeout before the call. With `tenant`, and in a session that acts for a
-- tenant, fires the schedules and runs the commands of this tenant only. Locks jobs FOR UPDATE SKIP
-- LOCKED.
CREATE OR REPLACE FUNCTION execute_due(
  max int DEFAULT 100,
  now timestamptz DEFAULT NULL,
  path text DEFAULT current_setting('search_path'),
  tenant text DEFAULT NULL
)
RETURNS TABLE (
  schedule text,
  slot timestamptz,
  outcome text,
  duration interval,
  error text
)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  t timestamptz := _clock(now);
  acting text := _acting_tenant(tenant);
  j jobs;
BEGIN
  PERFORM tick(max, now => now, for_tenant => acting);
  PERFORM promote(max, now => now);
  PERFORM unblock(max => max, now => now);
  FOR j IN
    SELECT x.*
    FROM slots l
    JOIN jobs x ON x.id = l.job_id
    WHERE l.outcome IS NULL
      AND l.job_id IS NOT NULL
      AND x.type = 'watchbill.sql'
      AND (acting IS NULL OR x.tenant = acting)
      AND x.wait IS NULL
      AND x.fence = 0
      AND (x.expires_at IS NULL OR x.expires_at > t)
    ORDER BY x.priority DESC, x.run_at, x.id
    LIMIT max
    FOR UPDATE OF x SKIP LOCKED
  LOOP
    schedule := (SELECT s.name FROM schedules s WHERE s.id = j.schedule_id);
    slot := j.slot;
    SELECT * INTO outcome, duration, error FROM _execute_sql_job(j, path, t);
    RETURN NEXT;
  END LOOP;
END $$;

-- Runs the SQL command of a job that no node has claimed, in a subtransaction, and settles the job.
-- The slot records the session's user and the address of the client. PostgreSQL starts the clock of
-- statement_timeout before it calls a function, so a time-out of the job can only be reported after
-- the run. The caller has locked the job.
CREATE OR REPLACE FUNCTION _execute_sql_job(
  j jobs, path text, t timestamptz, OUT outcome text, OUT duration interval, OUT error text
)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  began timestamptz := clock_timestamp();
  affected bigint;
  c record;
BEGIN
  UPDATE jobs x SET run = x.run + 1 WHERE x.id = j.id;
  UPDATE slots s
  SET executor = session_user, host = coalesce(host(inet_client_addr()), 'local')
  WHERE s.schedule_id = j.schedule_id
    AND s.slot = coalesce(j.slot, j.created_at)
    AND s.job_id = j.id;
  BEGIN
    SELECT * INTO c FROM _find_job_command(j.id);
    IF c.command IS NULL THEN
      RAISE EXCEPTION 'the schedule that made this job is removed, or has no command now';
    END IF;
    affected := _execute_sql_command(c.command, c.role, path);
    outcome := 'succeeded';
  EXCEPTION WHEN OTHERS THEN
    outcome := 'failed';
    error := SQLERRM;
  END;
  duration := clock_timestamp() - began;
  IF extract(epoch FROM duration) > j.timeout THEN
    RAISE WARNING 'job % ran for % s, longer than its timeout of % s, because no worker ran it',
        j.id, round(extract(epoch FROM duration), 1), j.timeout
      USING HINT = 'set statement_timeout in this session, or let a worker run it';
  END IF;
  PERFORM _settle_unclaimed_job(
    j.id,
    outcome,
    extract(epoch FROM duration)::float8,
    CASE WHEN error IS NULL THEN jsonb_build_object('rows', affected) END,
    CASE WHEN error IS NOT NULL THEN
      jsonb_build_object('kind', 'error', 'message', error)
    END,
    t);
END $$;

-- Returns the SQL command that a job may run, and its role: those that its schedule has now. No row
-- if no open slot names the job, or if the schedule is removed or has no command. The payload of
-- the job does not count: a role that may write jobs, but no commands, could have written it.
CREATE OR REPLACE FUNCTION _find_job_command(id uuid)
RETURNS TABLE (command text, role text)
LANGUAGE sql STABLE AS $$
  SELECT s.command, s.role
  FROM jobs j
  JOIN slots l ON l.schedule_id = j.schedule_id AND l.job_id = j.id
  JOIN schedules s ON s.id = j.schedule_id
  WHERE j.id = _find_job_command.id
    AND j.type = 'watchbill.sql'
    AND l.slot = coalesce(j.slot, j.created_at)
    AND l.outcome IS NULL
    AND s.command IS NOT NULL
$$;

CREATE OR REPLACE FUNCTION _execute_sql_command(command text, role text, search_path text)
RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  own_role text := current_setting('role');
  affected bigint;
BEGIN
  PERFORM
    set_config('search_path', search_path, true),
    set_config('role', coalesce(role, own_role), true);
  EXECUTE command;
  GET DIAGNOSTICS affected = ROW_COUNT;
  -- Sets the role back. After an error the end of the subtransaction does this. The end of this
  -- function sets the search_path back.
  PERFORM set_config('role', own_role, true);
  RETURN affected;
END $$;

-- Ends the run of a job that no node has claimed. The caller has locked the job.
CREATE OR REPLACE FUNCTION _settle_unclaimed_job(
  id uuid, outcome text, age float8, result jsonb, error jsonb, t timestamptz
)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  e ending := (
    SELECT ROW(
      j.id, 0, outcome,
      CASE
        WHEN outcome = 'succeeded' THEN 'succeeded'
        WHEN j.attempt + 1 >= j.max_attempts THEN 'dead'
        ELSE 'failed'
      END,
      age, NULL, result, error)::ending
    FROM jobs j
    WHERE j.id = id);
BEGIN
  IF e.state <> 'failed' THEN
    PERFORM _announce_freed(f.freed) FROM _finish_jobs(ARRAY[e], NULL, t) f;
    RETURN;
  END IF;
  PERFORM _announce_freed(_requeue_jobs(ARRAY[e], NULL, t));
  PERFORM _wake_promoters((SELECT j.run_at FROM jobs j WHERE j.id = id), t);
END $$;

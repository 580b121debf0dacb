-- Without any worker: psql, or a cron of somebody else's, calls this once a minute, and what schedules have SQL commands to run runs here.

-- Ticks, then runs the commands that wait, each in a subtransaction of the caller's: what one of them did stays exactly if its job is recorded as succeeded.
-- A timeout cannot be armed inside a function; the caller's own statement_timeout counts. `path`: commands see the caller's search_path, not ours.
CREATE OR REPLACE FUNCTION execute_due(max int DEFAULT 100, now timestamptz DEFAULT NULL, path text DEFAULT current_setting('search_path'))
RETURNS TABLE (schedule text, slot timestamptz, outcome text, duration interval, error text) LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(execute_due.now, clock());
  began timestamptz;
  j jobs;
  affected bigint;
BEGIN
  PERFORM tick(execute_due.max, now => t);
  PERFORM promote(execute_due.max, now => t);
  PERFORM unblock(max => execute_due.max, now => t);
  FOR j IN SELECT x.* FROM slots l JOIN jobs x ON x.id = l.job_id
      WHERE l.outcome IS NULL AND l.job_id IS NOT NULL AND x.type = 'watchbill.sql' AND x.wait IS NULL AND x.fence = 0
      ORDER BY x.priority DESC, x.run_at, x.id LIMIT execute_due.max FOR UPDATE OF x SKIP LOCKED LOOP
    schedule := (SELECT s.name FROM schedules s WHERE s.id = j.schedule_id);
    slot := j.slot;
    outcome := 'succeeded';
    error := NULL;
    began := clock_timestamp();
    UPDATE jobs x SET run = x.run + 1 WHERE x.id = j.id;
    BEGIN
      affected := execute_command(j.payload->>'command', j.payload->>'role', execute_due.path);
    EXCEPTION WHEN OTHERS THEN
      outcome := 'failed';
      error := SQLERRM;
    END;
    duration := clock_timestamp() - began;
    PERFORM settle_here(j.id, outcome, extract(epoch FROM duration)::float8, CASE WHEN error IS NULL THEN jsonb_build_object('rows', affected) END,
      CASE WHEN error IS NOT NULL THEN jsonb_build_object('kind', 'error', 'message', error) END, t);
    RETURN NEXT;
  END LOOP;
END $$;

CREATE OR REPLACE FUNCTION execute_command(command text, role text, path text) RETURNS bigint LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
  own_role text := current_setting('role');
  affected bigint;
BEGIN
  PERFORM set_config('search_path', execute_command.path, true), set_config('role', coalesce(execute_command.role, own_role), true);
  EXECUTE execute_command.command;
  GET DIAGNOSTICS affected = ROW_COUNT;
  PERFORM set_config('role', own_role, true);            -- after an error the subtransaction puts it back; the path goes with this function
  RETURN affected;
END $$;

-- The end of a run that no node claimed: the row is locked, and fence 0 is its own.
CREATE OR REPLACE FUNCTION settle_here(id uuid, outcome text, age float8, result jsonb, error jsonb, t timestamptz) RETURNS void LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  e ending := (SELECT ROW(j.id, 0, settle_here.outcome, CASE WHEN settle_here.outcome = 'succeeded' THEN 'succeeded' WHEN j.attempt + 1 >= j.max_attempts THEN 'dead' ELSE 'failed' END,
    settle_here.age, NULL, settle_here.result, settle_here.error)::ending FROM jobs j WHERE j.id = settle_here.id);
BEGIN
  IF e.state <> 'failed' THEN
    PERFORM finish(ARRAY[e], NULL, t);
    RETURN;
  END IF;
  PERFORM put_back(ARRAY[e], NULL, t);
  PERFORM wake_later((SELECT j.run_at FROM jobs j WHERE j.id = settle_here.id), t);
END $$;

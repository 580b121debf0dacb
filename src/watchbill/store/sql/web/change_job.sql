-- Gives a job that waits another priority or another queue; NULL keeps what it has. Returns the
-- state of the job; NULL if there is no such job. Locks the job.
CREATE OR REPLACE FUNCTION _change_job(
  id uuid,
  priority int DEFAULT NULL,
  queue text DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  named record;
  j jobs;
BEGIN
  IF NOT priority BETWEEN -32768 AND 32767 OR NOT length(queue) BETWEEN 1 AND 100 THEN
    RAISE EXCEPTION 'the change of job % is invalid', id
      USING ERRCODE = 'WB003',
        HINT = 'priority is between -32768 and 32767, and queue has 1 to 100 characters';
  END IF;
  SELECT * INTO named FROM _named_job(id);
  SELECT * INTO j FROM jobs x WHERE x.id = id AND x.seq = named.seq FOR NO KEY UPDATE;
  IF named.seq IS NULL THEN RETURN NULL; END IF;
  IF j.id IS NULL OR j.fence <> 0 OR _is_suspended(j.wait, j.wait_key) THEN
    RAISE EXCEPTION 'job % does not wait for its start', id
      USING ERRCODE = 'WB008', HINT = 'only jobs that are queued, blocked or failed can be changed';
  END IF;
  IF priority <> j.priority THEN
    UPDATE jobs x SET priority = priority WHERE x.id = id;
    PERFORM _audit(
      'set_priority', 'job ' || id, j.tenant, jsonb_build_object('priority', priority), t);
  END IF;
  IF queue <> j.queue THEN PERFORM _move_job(j, queue, t); END IF;
  RETURN _job_state(j.fence, j.wait, j.failed, j.wait_key);
END $$;

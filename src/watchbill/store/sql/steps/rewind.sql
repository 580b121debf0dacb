-- Deletes a step of a job that does not run and those that were stored after it, and queues the job
-- again: it runs them again. Signals that they have read are unread again. Returns the old state of
-- the job; NULL if there is no such job. Locks the job.
CREATE OR REPLACE FUNCTION rewind(id uuid, step text, now timestamptz DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  job record;
  j jobs;
  old_state text;
BEGIN
  SELECT * INTO job FROM _named_job(id);
  IF job.seq IS NULL THEN RETURN NULL; END IF;
  SELECT * INTO j FROM jobs x WHERE x.id = id AND x.seq = job.seq FOR UPDATE;
  IF NOT FOUND THEN
    SELECT f.state INTO old_state
    FROM finished_jobs f
    WHERE f.id = id
      AND f.seq = job.seq
      AND f.finished_at >= _history_start(id)
    FOR UPDATE;
  ELSIF j.fence = 0 THEN
    old_state := _job_state(j.fence, j.wait, j.failed, j.wait_key);
  END IF;
  IF old_state IS NULL THEN
    RAISE EXCEPTION 'job % is running', id
      USING ERRCODE = 'WB008', HINT = 'cancel or release it first';
  ELSIF old_state = 'succeeded' THEN
    RAISE EXCEPTION 'job % has succeeded', id
      USING ERRCODE = 'WB008', HINT = 'retry it without a step: it runs from its start';
  ELSIF _is_undoing(id, job.tenant) THEN
    RAISE EXCEPTION 'job % has undone its steps', id
      USING ERRCODE = 'WB008', HINT = 'retry it without a step: it runs from its start';
  END IF;
  PERFORM _delete_steps_from(id, job.tenant, step);
  PERFORM _audit('rewind', 'job ' || id, job.tenant, jsonb_build_object('step', step), t);
  IF old_state = 'suspended' THEN
    PERFORM _make_suspended_ready(j, t);
  ELSE
    PERFORM _reschedule_job(id, job.seq, NULL, t);
  END IF;
  RETURN old_state;
END $$;

-- Deletes a step of a job and those that were stored after it. The caller has locked the job.
CREATE OR REPLACE FUNCTION _delete_steps_from(job_id uuid, tenant text, step text)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  deleted text[];
BEGIN
  WITH d AS (
    DELETE FROM steps s
    WHERE s.job_id = job_id
      AND s.tenant = tenant
      AND s.seq >= (
        SELECT x.seq
        FROM steps x
        WHERE x.job_id = job_id
          AND x.tenant = tenant
          AND x.name = step)
    RETURNING s.name)
  SELECT array_agg(d.name) INTO deleted FROM d;
  IF deleted IS NULL THEN
    RAISE EXCEPTION 'job % has no step %', job_id, quote_nullable(step)
      USING ERRCODE = 'WB003', HINT = 'watchbill jobs steps ' || job_id || ' lists its steps';
  END IF;
  UPDATE signals g
  SET read_by = NULL
  WHERE g.job_id = job_id
    AND g.tenant = tenant
    AND g.read_by = ANY (deleted);
  DELETE FROM step_waits w
  WHERE w.job_id = job_id
    AND w.tenant = tenant
    AND w.step = ANY (deleted);
END $$;

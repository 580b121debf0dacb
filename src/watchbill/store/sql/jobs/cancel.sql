-- Cancels a job. A waiting job ends at once. A running job gets a stop request, and ends as
-- canceled unless it succeeds first; with `force` it ends at once, and the result of its handler is
-- rejected. Returns the new state (`running` if the job got a stop request); NULL if there is no
-- such job.
CREATE OR REPLACE FUNCTION cancel(
  id uuid,
  reason text DEFAULT NULL,
  force boolean DEFAULT false,
  now timestamptz DEFAULT NULL
)
RETURNS text
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  RETURN (SELECT c.state FROM _cancel_job(id, reason, force, now) c);
END $$;

-- Cancels a job as cancel() does. `ended` says whether this call has ended the job, so that the
-- caller sends its event.
CREATE OR REPLACE FUNCTION _cancel_job(
  job_id uuid,
  reason text,
  force boolean,
  now timestamptz DEFAULT NULL,
  OUT state text,
  OUT ended boolean
)
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  SELECT c.state, c.ended
  INTO state, ended
  FROM _cancel_job_at(job_id, reason, force, _clock(now)) c;
END $$;

-- Cancels a job at the time `t`. Locks the job. With `force` this waits for guard() before it locks
-- anything else.
CREATE OR REPLACE FUNCTION _cancel_job_at(
  job_id uuid,
  reason text,
  force boolean,
  t timestamptz,
  OUT state text,
  OUT ended boolean
)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  j jobs;
  node_epoch bigint;
BEGIN
  ended := false;
  IF force THEN
    SELECT * INTO j FROM jobs x WHERE x.id = job_id FOR UPDATE;
  ELSE
    SELECT * INTO j FROM jobs x WHERE x.id = job_id FOR NO KEY UPDATE;
  END IF;
  IF NOT FOUND THEN
    state := (
      SELECT f.state
      FROM finished_jobs f
      WHERE f.id = job_id
        AND f.finished_at >= _history_start(job_id)
      ORDER BY f.seq
      LIMIT 1);
    RETURN;
  END IF;
  PERFORM _audit(
    'cancel', 'job ' || job_id, j.tenant, jsonb_build_object('reason', reason, 'force', force), t);
  SELECT c.epoch INTO node_epoch FROM claims c WHERE c.fence = j.fence;
  state := 'running';
  IF j.fence <> 0 THEN
    PERFORM _request_stop(job_id, reason, t);
    IF force IS NOT TRUE THEN RETURN; END IF;
  END IF;
  PERFORM _announce_freed(e.freed)
  FROM _finish_jobs(
    ARRAY[ROW(
      job_id, j.fence, 'canceled', 'canceled', NULL, NULL, NULL,
      jsonb_build_object('kind', 'canceled', 'message', coalesce(reason, 'canceled')))::ending],
    node_epoch, t) e;
  PERFORM _cancel_job_at(
    w.child, format('job %s, which waits for it in a step, was canceled', j.id), force, t)
  FROM step_waits w
  WHERE w.job_id = j.id
    AND w.tenant = j.tenant
    AND w.is_child
    AND w.outcome IS NULL;
  state := 'canceled';
  ended := true;
END $$;

-- Asks the handler of a claimed job to stop. The caller has locked the job.
CREATE OR REPLACE FUNCTION _request_stop(job_id uuid, reason text, t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
  job_fence bigint;
BEGIN
  UPDATE jobs x
  SET canceling = true
  WHERE x.id = _request_stop.job_id
  RETURNING x.fence INTO job_fence;
  INSERT INTO cancels (job_id, fence, epoch, reason, requested_by, requested_at)
  SELECT
    _request_stop.job_id, job_fence,
    coalesce((SELECT c.epoch FROM claims c WHERE c.fence = job_fence), 0),
    _request_stop.reason, session_user, t
  ON CONFLICT (job_id) DO UPDATE
  SET fence = EXCLUDED.fence, epoch = EXCLUDED.epoch;
  PERFORM pg_notify(_wake_channel(), 'stop ' || _request_stop.job_id);
END $$;

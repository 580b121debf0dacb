-- Cancels a job. A waiting job ends at once. A running job gets a stop request, and ends as
-- canceled unless it succeeds first; with `force` it ends at once, and the result of its handler is
-- rejected. A job with steps that have an undo runs again to undo them, and then ends as canceled;
-- with `force` it does not undo them. Returns the new state (`running` if the job got a stop
-- request); NULL if there is no such job.
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
  endings ending[];
BEGIN
  reason := left(reason, 1000);
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
  IF force IS NOT TRUE AND _is_undoing(j.id, j.tenant) THEN
    state := _job_state(j.fence, j.wait, j.failed, j.wait_key);
    RETURN;
  END IF;
  state := 'running';
  IF j.fence <> 0 THEN
    PERFORM _request_stop(job_id, reason, t);
    IF force IS NOT TRUE THEN RETURN; END IF;
  END IF;
  endings := ARRAY[ROW(
    job_id, j.fence, 'canceled', 'canceled', NULL, NULL, NULL,
    jsonb_build_object(
      'kind', 'canceled', 'message', _describe_forced_cancel(j, reason, force)))::ending];
  PERFORM _cancel_jobs_of_steps(endings, force, t);
  IF force IS NOT TRUE THEN
    endings := _begin_undos(endings, t);
    IF (endings[1]).state <> 'canceled' THEN
      PERFORM _make_suspended_ready(j, t);
      state := 'queued';
      RETURN;
    END IF;
  END IF;
  PERFORM _announce_freed(e.freed) FROM _finish_jobs(endings, node_epoch, t) e;
  state := 'canceled';
  ended := true;
END $$;

-- Returns the message of a canceled job, which names the steps that `force` leaves as they are.
CREATE OR REPLACE FUNCTION _describe_forced_cancel(j jobs, reason text, force boolean)
RETURNS text
LANGUAGE sql STABLE
AS $$
  SELECT coalesce(reason, 'canceled') || CASE
      WHEN force AND u.names IS NOT NULL
        THEN '; these steps were not undone: ' || array_to_string(u.names, ', ')
      ELSE ''
    END
  FROM (SELECT CASE WHEN force THEN _list_open_undos(j.id, j.tenant) END AS names) u
$$;

-- Cancels the jobs for which steps of canceled jobs wait and which these steps have enqueued. The
-- caller has locked the canceled jobs.
CREATE OR REPLACE FUNCTION _cancel_jobs_of_steps(endings ending[], force boolean, t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM unnest(endings) e WHERE e.state = 'canceled') THEN RETURN; END IF;
  PERFORM _cancel_job_at(
    w.child, format('job %s, which waits for it in a step, was canceled', w.job_id), force, t)
  FROM unnest(endings) e
  JOIN jobs j ON j.id = e.id AND j.fence = e.fence
  JOIN step_waits w ON w.job_id = j.id AND w.tenant = j.tenant
  WHERE e.state = 'canceled'
    AND w.is_child
    AND w.outcome IS NULL;
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

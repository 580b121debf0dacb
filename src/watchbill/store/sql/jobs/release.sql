-- Queues a running job again, so that any node may run it. A later result of the node that runs it
-- now is rejected.
CREATE OR REPLACE FUNCTION release(id uuid, now timestamptz DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  RETURN (SELECT r.released FROM _release_job(id, now) r);
END $$;

-- Releases a job as release() does. `ended` is true if the job had a stop request and so has ended
-- as canceled. Locks the job.
CREATE OR REPLACE FUNCTION _release_job(
  job_id uuid,
  now timestamptz DEFAULT NULL,
  OUT released boolean,
  OUT ended boolean
)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  j jobs;
  endings ending[];
BEGIN
  SELECT * INTO j FROM jobs x WHERE x.id = job_id AND x.fence <> 0 FOR UPDATE;
  released := FOUND;
  ended := coalesce(j.canceling, false);
  IF NOT released THEN RETURN; END IF;
  INSERT INTO attempts (
    job_id, run, attempt, fence, epoch, outcome, due_at, ended_at, queue, type, tenant, error)
  VALUES (
    j.id, j.run, j.attempt, j.fence, (SELECT c.epoch FROM claims c WHERE c.fence = j.fence),
    'released', j.run_at, t, j.queue, j.type, j.tenant,
    jsonb_build_object('kind', 'released', 'message', 'released by ' || session_user));
  IF j.canceling THEN
    endings := ARRAY[ROW(j.id, j.fence, 'released', 'canceled', NULL, NULL, NULL, NULL)::ending];
    PERFORM _cancel_jobs_of_steps(endings, false, t);
    endings := _begin_undos(endings, t);
    ended := (endings[1]).state = 'canceled';
    PERFORM _announce_freed(e.freed) FROM _finish_jobs(endings, NULL, t) e;
    PERFORM _announce_freed(_requeue_jobs(endings, NULL, t));
  ELSE
    UPDATE jobs x
    SET fence = 0,
      ended_at = t,
      failed = false,
      run_at = t,
      wait = NULL,
      wait_key = NULL,
      lane = _find_ready_lane(x.queue, x.route_key, x.lane)
    WHERE x.id = job_id;
    PERFORM _announce_freed(_release_holds(ARRAY[job_id]));
  END IF;
  PERFORM _audit('release', 'job ' || job_id, j.tenant, NULL, t);
  PERFORM pg_notify(_wake_channel(), 'stop ' || job_id);
  PERFORM _wake_workers(j.queue);
END $$;

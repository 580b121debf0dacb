-- What an operator, or the program that enqueued a job, may do to it. Each verb leaves a row in the audit.

-- Cancels a job. Waiting: at once. Running: it is asked to stop, and ends canceled unless it succeeds first; with `force` it ends here and now, and
-- whatever its handler still does is refused. Answers with the state it is in afterwards (running: asked), NULL when there is no such job.
CREATE OR REPLACE FUNCTION cancel(id uuid, reason text DEFAULT NULL, force boolean DEFAULT false, now timestamptz DEFAULT NULL)
RETURNS text LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN (SELECT c.state FROM cancel_job(cancel.id, cancel.reason, cancel.force, cancel.now) c);
END $$;

-- The same, and whether it has ended by this call: who tells others of it tells them once.
CREATE OR REPLACE FUNCTION cancel_job(id uuid, reason text, force boolean, now timestamptz DEFAULT NULL, OUT state text, OUT ended boolean)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(cancel_job.now, clock());
  j jobs;
  holder bigint;
BEGIN
  ended := false;
  IF cancel_job.force THEN
    SELECT * INTO j FROM jobs x WHERE x.id = cancel_job.id FOR UPDATE;        -- waits for a handler's guard, and meanwhile holds nothing that it may want
  ELSE
    SELECT * INTO j FROM jobs x WHERE x.id = cancel_job.id FOR NO KEY UPDATE; -- does not wait for it
  END IF;
  IF NOT FOUND THEN
    state := (SELECT f.state FROM finished_jobs f WHERE f.id = cancel_job.id AND f.finished_at >= history_from(cancel_job.id) LIMIT 1);
    RETURN;
  END IF;
  PERFORM note('cancel', 'job ' || cancel_job.id, j.tenant, jsonb_build_object('reason', cancel_job.reason, 'force', cancel_job.force), t);
  SELECT c.epoch INTO holder FROM claims c WHERE c.fence = j.fence;
  state := 'running';
  IF j.fence <> 0 THEN
    UPDATE jobs x SET canceling = true WHERE x.id = cancel_job.id;
    INSERT INTO cancels (job_id, fence, epoch, reason, requested_by, requested_at)
      VALUES (cancel_job.id, j.fence, coalesce(holder, 0), cancel_job.reason, session_user, t) ON CONFLICT (job_id) DO UPDATE SET fence = EXCLUDED.fence, epoch = EXCLUDED.epoch;
    PERFORM pg_notify(wake_channel(), 'stop ' || cancel_job.id);
    IF cancel_job.force IS NOT TRUE THEN RETURN; END IF;
  END IF;
  PERFORM finish(ARRAY[ROW(cancel_job.id, j.fence, 'canceled', 'canceled', NULL, NULL, NULL,
    jsonb_build_object('kind', 'canceled', 'message', coalesce(cancel_job.reason, 'canceled')))::ending], holder, t);
  state := 'canceled';
  ended := true;
END $$;

-- A rerun. Of a finished or failed job: queued again, same id, fresh attempts. Of a queued one: another run_at.
-- Answers with the state it was in, NULL when there is no such job.
CREATE OR REPLACE FUNCTION reschedule(id uuid, run_at timestamptz DEFAULT NULL, now timestamptz DEFAULT NULL)
RETURNS text LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(reschedule.now, clock());
  due timestamptz := coalesce(reschedule.run_at, t);
  j jobs;
  was text;
BEGIN
  IF due NOT BETWEEN '0001-01-03 00:00+00' AND '9999-12-29 00:00+00' THEN
    RAISE EXCEPTION 'run_at must be a finite time, within the years 1 to 9999' USING ERRCODE = 'WB003';
  END IF;
  SELECT * INTO j FROM jobs x WHERE x.id = reschedule.id FOR UPDATE;
  IF NOT FOUND THEN
    was := revive(reschedule.id, due, t);
    SELECT * INTO j FROM jobs x WHERE x.id = reschedule.id FOR UPDATE;   -- its own, or that of a reschedule we waited for
  END IF;
  IF was IS NULL AND j.fence <> 0 THEN
    RAISE EXCEPTION 'job % is running', reschedule.id USING ERRCODE = 'WB008', HINT = 'cancel or release it first';
  ELSIF was IS NULL AND j.fence = 0 THEN
    was := CASE WHEN j.wait = 'blocked' THEN 'blocked' WHEN j.failed THEN 'failed' ELSE 'queued' END;
    UPDATE jobs x SET run_at = due, attempt = CASE WHEN x.failed THEN 0 ELSE x.attempt END, lost = CASE WHEN x.failed THEN 0 ELSE x.lost END,
      alone = x.alone AND NOT x.failed, failed = false,
      wait = CASE WHEN x.wait IN ('blocked', 'parked', 'paused') THEN x.wait WHEN due > t THEN 'delayed' WHEN x.wait = 'unsupported' THEN x.wait END
      WHERE x.id = reschedule.id;
  END IF;
  IF was IS NOT NULL THEN
    PERFORM note('reschedule', 'job ' || reschedule.id, j.tenant, jsonb_build_object('from', was, 'run_at', due), t);
    IF due > t THEN PERFORM wake_later(due, t); ELSE PERFORM wake(''); END IF;
  END IF;
  RETURN was;
END $$;

-- Takes a finished job back.
CREATE OR REPLACE FUNCTION revive(id uuid, due timestamptz, t timestamptz) RETURNS text LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  f finished_jobs;
BEGIN
  DELETE FROM finished_jobs x WHERE x.id = revive.id AND x.finished_at >= history_from(revive.id) RETURNING * INTO f;
  IF NOT FOUND THEN RETURN NULL; END IF;
  PERFORM restore(f, revive.due, CASE WHEN revive.due > revive.t THEN 'delayed' END);
  PERFORM take_back_ends(f.id, revive.t);
  RETURN f.state;
END $$;

-- A success leaves the row among the attempts that its history row was.
CREATE OR REPLACE FUNCTION restore(f finished_jobs, run_at timestamptz, wait text) RETURNS void LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
  IF f.state = 'succeeded' AND f.outcome IS NULL THEN
    INSERT INTO attempts (job_id, run, attempt, fence, epoch, outcome, started_at, ended_at, queue, type, tenant)
      VALUES (f.id, f.run, f.attempt, f.fence, f.epoch, 'succeeded', f.started_at, f.finished_at, f.queue, f.type, f.tenant);
  END IF;
  INSERT INTO jobs (id, seq, run_at, created_at, lane, run, policy, timeout, version, priority, max_attempts, limited, awaited, wait, queue, type, tenant,
      idempotency_key, route_key, limit_keys, schedule_id, slot, ended_at, created_by, payload, meta)
    VALUES (f.id, f.seq, restore.run_at, f.created_at, f.lane, f.run, f.policy, f.timeout, f.version, f.priority, f.max_attempts,
      f.limit_keys IS NOT NULL, EXISTS (SELECT FROM dependencies d WHERE d.parent = f.id), restore.wait, f.queue, f.type, f.tenant, f.idempotency_key, f.route_key, f.limit_keys,
      f.schedule_id, f.slot, f.finished_at, f.created_by, f.payload, f.meta);
  IF f.schedule_id IS NOT NULL THEN PERFORM reopen_slot(f.schedule_id, coalesce(f.slot, f.created_at), f.id); END IF;
END $$;

-- Takes a running job away from its node and queues it again; whatever that node still says of it is refused.
CREATE OR REPLACE FUNCTION release(id uuid, now timestamptz DEFAULT NULL) RETURNS boolean LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN (SELECT r.released FROM release_job(release.id, release.now) r);
END $$;

-- The same, and whether it has ended by this: it was asked to stop.
CREATE OR REPLACE FUNCTION release_job(id uuid, now timestamptz DEFAULT NULL, OUT released boolean, OUT ended boolean)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(release_job.now, clock());
  j jobs;
BEGIN
  SELECT * INTO j FROM jobs x WHERE x.id = release_job.id AND x.fence <> 0 FOR UPDATE;
  released := FOUND;
  ended := coalesce(j.canceling, false);
  IF NOT released THEN RETURN; END IF;
  INSERT INTO attempts (job_id, run, attempt, fence, epoch, outcome, ended_at, queue, type, tenant, error)
    VALUES (j.id, j.run, j.attempt, j.fence, (SELECT c.epoch FROM claims c WHERE c.fence = j.fence), 'released', t, j.queue, j.type, j.tenant,
      jsonb_build_object('kind', 'released', 'message', 'released by ' || session_user));
  IF j.canceling THEN
    PERFORM finish(ARRAY[ROW(j.id, j.fence, 'released', 'canceled', NULL, NULL, NULL, NULL)::ending], NULL, t);
  ELSE
    UPDATE jobs x SET fence = 0, ended_at = t, failed = false, run_at = t, wait = NULL WHERE x.id = release_job.id;
  END IF;
  PERFORM note('release', 'job ' || release_job.id, j.tenant, NULL, t);
  PERFORM wake(j.queue);
END $$;

-- Ends the jobs that these claims hold and that were asked to stop: used where claims are given up.
CREATE OR REPLACE FUNCTION finish_canceled(fences bigint[], t timestamptz) RETURNS void LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
  PERFORM finish(ARRAY(SELECT ROW(j.id, j.fence, 'released', 'canceled', NULL, NULL, NULL, NULL)::ending
    FROM claims c CROSS JOIN LATERAL unnest(c.job_ids) x(id) JOIN jobs j ON j.id = x.id AND j.fence = c.fence
    WHERE c.fence = ANY (finish_canceled.fences) AND j.canceling FOR UPDATE OF j SKIP LOCKED), NULL, finish_canceled.t);
END $$;

-- Nothing of this queue, or of this type (in this queue), is started until resume. What runs goes on.
CREATE OR REPLACE FUNCTION pause(queue text DEFAULT NULL, type text DEFAULT NULL, reason text DEFAULT NULL, now timestamptz DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(pause.now, clock());
BEGIN
  IF pause.queue IS NULL AND pause.type IS NULL THEN
    RAISE EXCEPTION 'pause what?' USING ERRCODE = 'WB003', HINT = 'give a queue, a type or both';
  ELSIF length(pause.queue) NOT BETWEEN 1 AND 100 OR length(pause.type) NOT BETWEEN 1 AND 200 THEN
    RAISE EXCEPTION 'no job can be of this queue or type' USING ERRCODE = 'WB003', HINT = 'a queue has 1 to 100 characters, a type 1 to 200';
  END IF;
  INSERT INTO pauses (queue, type, reason, by, at) VALUES (pause.queue, pause.type, pause.reason, session_user, t) ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM note('pause', concat_ws(' ', 'queue ' || pause.queue, 'type ' || pause.type), NULL, jsonb_build_object('reason', pause.reason), t);
  RETURN true;
END $$;

CREATE OR REPLACE FUNCTION resume(queue text DEFAULT NULL, type text DEFAULT NULL, now timestamptz DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
  DELETE FROM pauses p WHERE p.queue IS NOT DISTINCT FROM resume.queue AND p.type IS NOT DISTINCT FROM resume.type;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM note('resume', concat_ws(' ', 'queue ' || resume.queue, 'type ' || resume.type), NULL, NULL, resume.now);
  PERFORM unpark_paused(resume.now);
  PERFORM wake(coalesce(resume.queue, ''));
  RETURN true;
END $$;

-- Jobs that were put aside for a pause that has ended; also a chore, for what a claim under way put aside while resume ran.
CREATE OR REPLACE FUNCTION unpark_paused(now timestamptz DEFAULT NULL) RETURNS int LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(unpark_paused.now, clock());
  n int;
BEGIN
  UPDATE jobs j SET wait = CASE WHEN j.run_at > t THEN 'delayed' END WHERE j.ctid = ANY (ARRAY(
    SELECT x.ctid FROM jobs x WHERE x.wait = 'paused'
      AND NOT EXISTS (SELECT FROM pauses p WHERE p.type = x.type AND (p.queue IS NULL OR p.queue = x.queue)) FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS n = ROW_COUNT;
  RETURN n;
END $$;

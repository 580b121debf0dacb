-- Queues a finished or failed job again, with all its attempts; sets the run_at of a queued job.
-- Returns the old state; NULL if there is no such job. Locks the job.
CREATE OR REPLACE FUNCTION reschedule(
  id uuid,
  run_at timestamptz DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS text
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  RETURN _reschedule_job(id, (_named_job(id)).seq, run_at, _clock(now));
END $$;

-- Reschedules the job with this id and this sequence number, as reschedule() does.
CREATE OR REPLACE FUNCTION _reschedule_job(
  id uuid,
  seq bigint,
  run_at timestamptz,
  t timestamptz
)
RETURNS text
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  due timestamptz := coalesce(run_at, t);
  j jobs;
  old_state text;
BEGIN
  IF due NOT BETWEEN '0001-01-03 00:00+00' AND '9999-12-29 00:00+00' THEN
    RAISE EXCEPTION 'run_at % is invalid', due
      USING ERRCODE = 'WB003', HINT = 'give a finite time in the years 1 to 9999';
  END IF;
  SELECT * INTO j FROM jobs x WHERE x.id = id AND x.seq = seq FOR UPDATE;
  IF NOT FOUND THEN
    old_state := _requeue_finished_job(id, seq, due, t);
    -- Now the job is in `jobs` again: this call has inserted it, or another call that this one has
    -- waited for.
    SELECT * INTO j FROM jobs x WHERE x.id = id AND x.seq = seq FOR UPDATE;
  END IF;
  IF old_state IS NULL AND j.fence <> 0 THEN
    RAISE EXCEPTION 'job % is running', id
      USING ERRCODE = 'WB008', HINT = 'cancel or release it first';
  ELSIF old_state IS NULL AND _is_suspended(j.wait, j.wait_key) THEN
    RAISE EXCEPTION 'job % waits in a step', id
      USING ERRCODE = 'WB008', HINT = 'end its sleep with: watchbill jobs wake ' || id;
  ELSIF old_state IS NULL AND j.fence = 0 THEN
    old_state := _job_state(j.fence, j.wait, j.failed, j.wait_key);
    IF due > j.expires_at THEN
      PERFORM _refuse_job(
        j.type, format('it would expire at %s, before it may start at %s', j.expires_at, due));
    END IF;
    UPDATE jobs x
    SET run_at = due,
      lane = _find_ready_lane(x.queue, x.route_key, x.lane),
      attempt = CASE WHEN x.failed THEN 0 ELSE x.attempt END,
      lost = CASE WHEN x.failed THEN 0 ELSE x.lost END,
      class = CASE
        WHEN x.class = 2 AND x.failed THEN _job_class(x.max_attempts, x.limit_keys)
        ELSE x.class
      END,
      failed = false,
      wait = CASE
        WHEN x.wait IN ('blocked', 'paused') THEN x.wait
        WHEN due > t THEN 'delayed'
        WHEN x.wait IN ('parked', 'unsupported') THEN x.wait
      END,
      wait_key = CASE
        WHEN x.wait = 'paused' OR due <= t AND x.wait IN ('parked', 'unsupported') THEN x.wait_key
      END
    WHERE x.id = id;
  END IF;
  IF old_state IS NOT NULL THEN
    IF j.type = 'watchbill.sql' THEN
      PERFORM _check_command_start(
        (SELECT s FROM schedules s WHERE s.id = j.schedule_id), j.payload);
    END IF;
    PERFORM _audit(
      'reschedule', 'job ' || id, j.tenant,
      jsonb_build_object('from', old_state, 'run_at', due), t);
    IF due > t THEN PERFORM _wake_promoters(due, t); ELSE PERFORM _wake_workers(''); END IF;
  END IF;
  RETURN old_state;
END $$;

-- Queues a finished job again and returns its old state.
CREATE OR REPLACE FUNCTION _requeue_finished_job(
  id uuid,
  seq bigint,
  due timestamptz,
  t timestamptz
)
RETURNS text
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  f finished_jobs;
BEGIN
  DELETE FROM finished_jobs x
  WHERE x.id = id
    AND x.seq = seq
    AND x.finished_at >= _history_start(id)
  RETURNING * INTO f;
  IF NOT FOUND THEN RETURN NULL; END IF;
  PERFORM _reinsert_finished_job(f, due, CASE WHEN due > t THEN 'delayed' END);
  PERFORM _block_children_again(f.id, f.tenant, t);
  -- A job that is older than notifications may have anything there.
  IF f.meta #>> '{notify,delivery}' IS NOT NULL THEN PERFORM _notify_again(f, t); END IF;
  RETURN f.state;
END $$;

-- Returns the lane of a finished job that is queued again: 0 if its queue is not fair or routed any
-- more.
CREATE OR REPLACE FUNCTION _find_requeued_lane(queue text, route_key text, lane int)
RETURNS int
LANGUAGE plpgsql STABLE
AS $$
BEGIN
  IF lane > 0 AND NOT EXISTS (
    SELECT
    FROM queues q
    WHERE q.name = queue
      AND (
        q.lanes = 'share'
        OR q.lanes = 'route' AND route_key IS NOT NULL)) THEN
    RETURN 0;
  END IF;
  RETURN _find_ready_lane(queue, route_key, lane);
END $$;

-- Moves a finished job back into `jobs`. Raises if a job of another tenant has taken its id. For
-- the quotas of its tenant this is a new job, unless the caller acts for all tenants. If it had
-- succeeded, adds a row to attempts: for a finished job the success is only in finished_jobs. Such
-- a job runs from its start, and so does one that has undone its steps; any other continues after
-- the steps that it has stored. Steps of other jobs that wait for it wait again.
CREATE OR REPLACE FUNCTION _reinsert_finished_job(f finished_jobs, run_at timestamptz, wait text)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  IF _may_have_quota(f.tenant) AND NOT _acts_for_all_tenants() THEN
    PERFORM _take_quota(f.tenant, 1, _payload_size(f.payload, f.meta));
  END IF;
  IF f.state = 'succeeded' AND f.outcome IS NULL THEN
    INSERT INTO attempts (
      job_id, run, attempt, fence, epoch, outcome, due_at, started_at, ended_at, queue, type,
      tenant)
    VALUES (
      f.id, f.run, f.attempt, f.fence, f.epoch, 'succeeded', f.run_at, f.started_at, f.finished_at,
      f.queue, f.type, f.tenant);
  END IF;
  IF f.state = 'succeeded' OR _is_undoing(f.id, f.tenant) THEN
    PERFORM _delete_steps(ARRAY[f.id], ARRAY[f.tenant]);
  END IF;
  INSERT INTO jobs (
    id, seq, run_at, created_at, lane, run, policy, timeout, version, priority, max_attempts,
    class, awaited, wait, queue, type, tenant, idempotency_key, route_key, limit_keys, order_key,
    schedule_id, slot, ended_at, created_by, payload, meta)
  VALUES (
    f.id, f.seq, run_at, f.created_at,
    _find_requeued_lane(f.queue, f.route_key, f.lane), f.run, f.policy, f.timeout,
    f.version, f.priority, f.max_attempts, _job_class(f.max_attempts, f.limit_keys),
    -- First, because it writes.
    _await_again(f.id, f.tenant)
      OR EXISTS (SELECT FROM dependencies d WHERE d.parent = f.id AND d.tenant = f.tenant),
    wait, f.queue, f.type, f.tenant, f.idempotency_key, f.route_key,
    CASE
      WHEN _may_have_quota(f.tenant) THEN _quota_keys(f.limit_keys, f.tenant)
      ELSE f.limit_keys
    END,
    f.order_key, f.schedule_id, f.slot, f.finished_at, f.created_by, f.payload, f.meta)
  ON CONFLICT (id) DO NOTHING;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'another job has the id %', f.id
      USING ERRCODE = 'WB008', HINT = 'try again when that job has ended';
  END IF;
  IF f.schedule_id IS NOT NULL THEN
    PERFORM _reopen_slot(f.schedule_id, coalesce(f.slot, f.created_at), f.id);
  END IF;
END $$;

-- Forgets how a finished job has ended, for the steps that have not collected that yet, because it
-- runs again. Returns whether there are any.
CREATE OR REPLACE FUNCTION _await_again(child uuid, tenant text)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
BEGIN
  UPDATE step_waits w
  SET outcome = NULL
  FROM steps s
  WHERE w.child = child
    AND w.tenant = tenant
    AND s.job_id = w.job_id
    AND s.tenant = w.tenant
    AND s.name = w.step
    AND s.ended_at IS NULL;
  RETURN FOUND;
END $$;

-- Makes the children of a finished job wait for it again, because it runs again. Children that were
-- canceled because of this job are blocked again, and so are their own children. The job that ends
-- a scheduled chain (watchbill.flow_end) waits again even if it is running or has ended. Locks the
-- children, which belong to the tenant of the job.
CREATE OR REPLACE FUNCTION _block_children_again(parent uuid, tenant text, t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  parents uuid[] := ARRAY[parent];
  children uuid[];
  waiting uuid[];
  ended uuid[];
  f finished_jobs;
BEGIN
  LOOP
    children := ARRAY(
      SELECT DISTINCT d.child
      FROM dependencies d
      WHERE d.parent = ANY (parents)
        AND d.tenant = tenant
        AND d.outcome IS NOT NULL);
    EXIT WHEN cardinality(children) = 0;
    waiting := ARRAY(
      SELECT j.id
      FROM jobs j
      WHERE j.id = ANY (children)
        AND j.tenant = tenant
        AND (j.wait = 'blocked' AND j.fence = 0 OR j.type = 'watchbill.flow_end')
      ORDER BY j.id
      FOR UPDATE);
    UPDATE jobs j
    SET fence = 0, wait = 'blocked', wait_key = NULL
    WHERE j.id = ANY (waiting)
      AND (j.fence <> 0 OR j.wait IS DISTINCT FROM 'blocked');
    ended := ARRAY(
      SELECT c.id
      FROM unnest(children) x(id)
      CROSS JOIN LATERAL (
        SELECT c.id
        FROM finished_jobs c
        WHERE c.id = x.id
          AND c.tenant = tenant
          AND c.finished_at >= _history_start(x.id)
          AND (
            c.state = 'canceled' AND c.error->>'kind' IN ('dependency', 'skipped')
            OR c.type = 'watchbill.flow_end')) c);
    UPDATE dependencies d
    SET outcome = NULL, result = NULL
    WHERE d.parent = ANY (parents)
      AND d.tenant = tenant
      AND d.child = ANY (waiting || ended);
    parents := '{}';
    FOR f IN
      DELETE FROM finished_jobs x
      USING _judge_children(ended, array_fill(tenant, ARRAY[cardinality(ended)])) v
      WHERE x.id = v.child
        AND x.tenant = tenant
        AND v.verdict = 'blocked'
        AND x.finished_at >= _history_start(x.id)
      RETURNING x.*
    LOOP
      PERFORM _reinsert_finished_job(f, f.run_at, 'blocked');
      parents := parents || f.id;
    END LOOP;
    EXIT WHEN cardinality(parents) = 0;
  END LOOP;
END $$;

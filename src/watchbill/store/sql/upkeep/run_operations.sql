-- Does the next step of a bulk operation: at most 500 jobs, or 200 ms. The step notes in the same
-- transaction how far it got, so a crash repeats nothing and leaves nothing out. Takes the
-- operation that waits longest, or the one with this `id`, and skips those whose step another
-- session does. Returns after how many seconds to call it again; NULL if no operation runs. Locks
-- the row of the operation and the jobs; waits at most 100 ms for a job.
CREATE OR REPLACE FUNCTION run_operations(
  id bigint DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS float8
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '100ms'
AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  op bulk_operations;
BEGIN
  PERFORM _check_isolation('run_operations');
  SELECT *
  INTO op
  FROM bulk_operations o
  WHERE o.state = 'running'
    AND o.next_at <= t
    AND (id IS NULL OR o.id = id)
  ORDER BY o.next_at, o.id
  LIMIT 1
  FOR UPDATE SKIP LOCKED;
  IF FOUND THEN
    -- Audit rows name the creator, not the node that does the step.
    PERFORM set_config('watchbill.actor', op.created_by, true);
    op := _run_operation_step(op, t);
    UPDATE bulk_operations o
    SET state = op.state,
      ended_at = CASE WHEN op.state = 'done' THEN t END,
      next_at = op.next_at,
      reached = op.reached,
      reached_slot = op.reached_slot,
      seen = op.seen,
      done = op.done,
      skipped = op.skipped,
      failed = op.failed,
      reasons = op.reasons,
      error = op.error
    WHERE o.id = op.id;
  END IF;
  RETURN (
    -- If no step was done, another session does those that are due.
    SELECT greatest(
      extract(epoch FROM min(o.next_at) - t), CASE WHEN op.id IS NULL THEN 0.1 ELSE 0 END)
    FROM bulk_operations o
    WHERE o.state = 'running'
      AND (id IS NULL OR o.id = id)
    HAVING count(*) > 0);
END $$;

-- Does one step, and returns the operation as it is after that.
CREATE OR REPLACE FUNCTION _run_operation_step(op bulk_operations, t timestamptz)
RETURNS bulk_operations
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  before bulk_operations := op;
  most int := least(500, ceil(coalesce(op.rate, 500)), coalesce(op.max_jobs - op.seen, 500));
BEGIN
  op := CASE op.kind
      WHEN 'backfill_slots' THEN _backfill_slots(op, most, t)
      WHEN 'enqueue' THEN _enqueue_items(op, most)
      ELSE _change_jobs(op, most, t)
    END;
  IF op.seen >= op.max_jobs THEN op.state := 'done'; END IF;
  op.next_at := t + make_interval(secs => coalesce((op.seen - before.seen) / op.rate, 0));
  RETURN op;
EXCEPTION
  -- The schedule of a backfill is being changed.
  WHEN lock_not_available THEN
    op := before;
    op.next_at := t + interval '1 second';
    RETURN op;
  WHEN OTHERS THEN
    op := before; -- as the jobs are again
    op.state := 'failed';
    op.error := SQLERRM;
    RETURN op;
END $$;

-- Counts what has become of one job or item of an operation.
CREATE OR REPLACE FUNCTION _count_outcome(op bulk_operations, outcome text, reason text)
RETURNS bulk_operations
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  op.seen := op.seen + 1;
  op.done := op.done + (outcome = 'done')::int;
  op.skipped := op.skipped + (outcome = 'skipped')::int;
  op.failed := op.failed + (outcome = 'failed')::int;
  IF outcome <> 'done' THEN op.reasons := _count_reason(op.reasons, reason); END IF;
  RETURN op;
END $$;

-- Changes the next jobs that match the conditions of an operation.
CREATE OR REPLACE FUNCTION _change_jobs(op bulk_operations, most int, t timestamptz)
RETURNS bulk_operations
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  began timestamptz := clock_timestamp();
  seen_before bigint := op.seen;
  ids uuid[] := '{}'; -- of the jobs that are purged together, at the end
  tenants text[] := '{}';
  is_over boolean := false;
  r record;
  a record;
BEGIN
  FOR r IN SELECT * FROM job_page(op.conditions, op.reached, 20000, most) LOOP
    IF r.id IS NULL THEN
      is_over := r.is_complete;
      op.reached := coalesce(r.next, op.reached);
      EXIT;
    END IF;
    -- Jobs of two tenants may have one id: a step ends between two ids.
    EXIT WHEN clock_timestamp() > began + interval '200 ms' AND r.id <> op.reached
      AND op.seen > seen_before;
    SELECT * INTO a FROM _act_on_job(op, r.id, r.seq, r.state, r.type, t);
    IF op.kind = 'purge' AND a.outcome = 'done' THEN
      ids := ids || r.id;
      tenants := tenants || r.tenant;
    END IF;
    IF a.outcome = 'stopped' THEN
      op.state := 'paused';
      op.error := a.reason;
      EXIT;
    END IF;
    op.reached := r.id;
    op := _count_outcome(op, a.outcome, a.reason);
  END LOOP;
  op := _purge_jobs(op, ids, tenants, t);
  IF is_over THEN op.state := 'done'; END IF;
  RETURN op;
END $$;

-- Deletes the jobs that a step has found. Those that have changed meanwhile are skipped.
CREATE OR REPLACE FUNCTION _purge_jobs(
  op bulk_operations, ids uuid[], tenants text[], t timestamptz
)
RETURNS bulk_operations
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  kept int;
BEGIN
  IF ids = '{}' THEN RETURN op; END IF;
  kept := cardinality(ids) - _delete_finished_jobs(ids, tenants, '{succeeded,dead,canceled}');
  IF kept > 0 THEN
    op.done := op.done - kept;
    op.skipped := op.skipped + kept;
    op.reasons := _count_reason(op.reasons, 'it has changed', kept);
  END IF;
  PERFORM _audit(
    'purge', cardinality(ids) - kept || ' jobs', op.tenant,
    jsonb_build_object('operation', op.id), t);
  RETURN op;
END $$;

-- Counts more jobs with this reason. Texts that differ from job to job count together.
CREATE OR REPLACE FUNCTION _count_reason(reasons jsonb, reason text, number int DEFAULT 1)
RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
  SELECT jsonb_set(
    reasons, ARRAY[k.name], to_jsonb(coalesce((reasons->>k.name)::bigint, 0) + number))
  FROM (
    SELECT CASE
        WHEN reasons ? reason OR (SELECT count(*) FROM jsonb_object_keys(reasons)) < 10 THEN reason
        ELSE 'another reason'
      END) k(name)
$$;

-- Does what the operation does to one job, which was in this state when it was found, except that
-- the step deletes purged jobs together. `outcome` is done, skipped (with the reason), failed (with
-- the error), or stopped if the operation cannot go on. An error undoes only this job's changes.
CREATE OR REPLACE FUNCTION _act_on_job(
  op bulk_operations,
  job_id uuid,
  seq bigint,
  state text,
  type text,
  t timestamptz,
  OUT outcome text,
  OUT reason text
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  outcome := 'skipped';
  reason := _find_obstacle(op, state, type);
  IF reason IS NOT NULL THEN RETURN; END IF;
  outcome := 'done';
  IF op.kind = 'retry' THEN
    PERFORM _take_creators_quota(op, job_id, seq);
    IF _reschedule_job(job_id, seq, NULL, t) IS NULL THEN reason := 'it has changed'; END IF;
  ELSIF op.kind <> 'purge' THEN
    reason := _change_unfinished_job(op, job_id, seq, t);
  END IF;
  IF reason IS NOT NULL THEN outcome := 'skipped'; END IF;
EXCEPTION
  WHEN SQLSTATE 'WB015' THEN
    outcome := 'stopped';
    reason := SQLERRM;
  WHEN lock_not_available OR deadlock_detected THEN
    outcome := 'failed';
    reason := 'another transaction has locked it';
  WHEN SQLSTATE 'WB008' THEN
    outcome := 'skipped';
    reason := 'it has changed';
  WHEN OTHERS THEN
    outcome := 'failed';
    reason := left(SQLERRM, 200);
END $$;

-- Says why the operation leaves a job in this state as it is; NULL: it changes the job.
CREATE OR REPLACE FUNCTION _find_obstacle(op bulk_operations, state text, type text)
RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT CASE
      WHEN NOT state = ANY (CASE op.kind
          WHEN 'retry' THEN '{failed,dead,canceled,succeeded}'::text[]
          WHEN 'cancel' THEN '{blocked,queued,running,failed,suspended}'
          WHEN 'release' THEN '{running}'
          WHEN 'purge' THEN '{succeeded,dead,canceled}'
          ELSE '{blocked,queued,failed}'
        END) THEN 'it is ' || state
      -- Nodes may run any SQL command again, so they would do it for a creator that may not.
      WHEN op.kind = 'retry' AND op.tenant IS NOT NULL AND type = 'watchbill.sql' THEN
        'only an operator for all tenants runs SQL commands again'
    END
$$;

-- A job that is queued again counts for the quotas of its tenant, if the creator of the operation
-- acts for that tenant. Where the caller does too, rescheduling counts it.
CREATE OR REPLACE FUNCTION _take_creators_quota(op bulk_operations, job_id uuid, seq bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  bytes bigint;
BEGIN
  IF op.tenant IS NULL OR NOT _may_have_quota(op.tenant) OR NOT _acts_for_all_tenants() THEN
    RETURN;
  END IF;
  SELECT _payload_size(f.payload, f.meta)
  INTO bytes
  FROM finished_jobs f
  WHERE f.id = job_id
    AND f.seq = seq
    AND f.finished_at >= _history_start(job_id);
  IF FOUND THEN PERFORM _take_quota(op.tenant, 1, bytes); END IF;
END $$;

-- Cancels or releases a job, or gives it another priority or queue. Returns why not; NULL if it was
-- done. Locks the job first: its id may belong to a job of another tenant by now, its number never.
CREATE OR REPLACE FUNCTION _change_unfinished_job(
  op bulk_operations, job_id uuid, seq bigint, t timestamptz
)
RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  j jobs;
BEGIN
  IF op.kind = 'release' THEN
    SELECT * INTO j FROM jobs x WHERE x.id = job_id AND x.seq = seq FOR UPDATE;
  ELSE
    SELECT * INTO j FROM jobs x WHERE x.id = job_id AND x.seq = seq FOR NO KEY UPDATE;
  END IF;
  IF NOT FOUND OR (j.fence <> 0) <> (op.kind = 'release') AND op.kind <> 'cancel' THEN
    RETURN 'it has changed';
  END IF;
  CASE op.kind
    WHEN 'cancel' THEN
      PERFORM _cancel_job_at(job_id, op.arguments->>'reason', false, t);
    WHEN 'release' THEN
      PERFORM _release_job(job_id);
    WHEN 'set_priority' THEN
      UPDATE jobs x
      SET priority = (op.arguments->>'priority')::smallint
      WHERE x.id = job_id;
      PERFORM _audit('set_priority', 'job ' || job_id, j.tenant, op.arguments, t);
    WHEN 'move_queue' THEN
      PERFORM _move_job(j, op.arguments->>'queue', t);
  END CASE;
  RETURN NULL;
END $$;

-- Moves a job to another queue, where it gets the lane that an enqueue would give it, and waits for
-- the pauses and nodes of that queue. A job that asks for labels keeps its lane. The caller has
-- locked the job.
CREATE OR REPLACE FUNCTION _move_job(j jobs, queue text, t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  q queues;
BEGIN
  SELECT * INTO q FROM queues x WHERE x.name = queue;
  IF q.lanes = 'share' AND (j.lane < 0 OR j.route_key IS NOT NULL) THEN
    RAISE EXCEPTION 'queue % is fair, so route_by and runs_on cannot be used in it',
      quote_literal(queue)
      USING ERRCODE = 'WB003', HINT = 'move it to another queue';
  END IF;
  UPDATE jobs x
  SET queue = queue,
    lane = CASE
      WHEN j.lane < 0 THEN j.lane
      WHEN q.lanes = 'share' THEN _make_share_lane(
        _render_key(q.fair_by, j.payload, j.tenant, j.type, 'fair_by', ''))
      WHEN q.lanes = 'route' AND j.route_key IS NOT NULL THEN _route_lane(
        q.token_group, j.route_key)
      ELSE 0
    END,
    class = CASE
      WHEN j.class = 2 THEN 2
      -- No node claims it ahead, so it starts when it is claimed.
      WHEN j.expires_at IS NOT NULL THEN 1
      ELSE _job_class(j.max_attempts, j.limit_keys)
    END,
    wait = CASE WHEN j.wait NOT IN ('paused', 'unsupported') THEN j.wait END,
    wait_key = CASE WHEN j.wait NOT IN ('paused', 'unsupported') THEN j.wait_key END
  WHERE x.id = j.id;
  PERFORM _audit(
    'move_queue', 'job ' || j.id, j.tenant,
    jsonb_build_object('from', j.queue, 'to', queue), t);
  PERFORM _wake_workers(queue);
END $$;

-- Moves jobs that have ended for good into the history, and records their last attempts. The caller
-- has locked these jobs. Returns the jobs that wait for them, and the limit keys that have a free
-- place now.
CREATE OR REPLACE FUNCTION _finish_jobs(
  endings ending[],
  epoch bigint,
  t timestamptz,
  OUT children uuid[],
  OUT freed text[]
)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  scheduled uuid[];
  parents uuid[];
  tenants text[]; -- of the parents
  outcomes text[];
  has_queue_limits boolean := _has_queue_limits();
BEGIN
  WITH d AS (
      DELETE FROM jobs j
      USING unnest(endings) e
      WHERE j.id = e.id
        AND j.fence = e.fence
        AND e.state IN ('succeeded', 'dead', 'canceled')
      RETURNING
        j.*, e.outcome, e.state, e.age, e.result,
        coalesce(e.error, _cancel_error(j.id, e.state)) AS error,
        CASE
          WHEN e.state = 'dead' OR e.outcome IN ('failed', 'timed_out', 'lost')
            THEN _failure_of(j.type, e.error)
        END AS failure,
        j.attempt + (e.outcome IN ('succeeded', 'skipped', 'failed', 'timed_out'))::int AS spent,
        CASE
          WHEN e.outcome = 'lost' THEN j.lost + 1
          WHEN e.outcome IN ('succeeded', 'skipped', 'failed', 'timed_out') OR e.age IS NOT NULL
            THEN 0
          ELSE j.lost
        END AS losses),
    h AS (
      INSERT INTO finished_jobs (
        id, seq, run_at, created_at, started_at, finished_at, fence, epoch, schedule_id, slot,
        lane, run, policy, timeout, version, priority, attempt, max_attempts, lost, state, outcome,
        queue, type, tenant, idempotency_key, route_key, limit_keys, order_key, created_by,
        payload, meta, result, error, failure)
      SELECT
        d.id, d.seq, d.run_at, d.created_at, _started_at(t, d.age), t, nullif(d.fence, 0),
        epoch, d.schedule_id, d.slot, d.lane, d.run, d.policy, d.timeout, d.version,
        d.priority, d.spent, d.max_attempts, d.losses, d.state,
        CASE WHEN d.outcome IN ('skipped', 'failed', 'timed_out', 'lost') THEN d.outcome END,
        d.queue, d.type, d.tenant, d.idempotency_key, d.route_key, d.limit_keys, d.order_key,
        d.created_by, d.payload, d.meta, d.result, d.error, d.failure
      FROM d),
    a AS (
      INSERT INTO attempts (
        job_id, run, attempt, fence, epoch, outcome, due_at, started_at, ended_at, queue, type,
        tenant, error, failure)
      SELECT
        d.id, d.run, d.spent + (d.outcome = 'lost')::int, d.fence, epoch, d.outcome, d.run_at,
        _started_at(t, d.age), t, d.queue, d.type, d.tenant, d.error, d.failure
      FROM d
      WHERE d.outcome IN ('skipped', 'failed', 'timed_out', 'lost')
        OR d.outcome NOT IN ('succeeded', 'unsupported', 'undone') AND d.age IS NOT NULL),
    c AS (DELETE FROM cancels c USING d WHERE c.job_id = d.id AND d.canceling),
    k AS MATERIALIZED (
      SELECT d.id, x.key
      FROM d
      CROSS JOIN LATERAL unnest(d.limit_keys) x(key)
      WHERE d.limit_keys IS NOT NULL
        AND NOT (d.state = 'dead' AND x.key = d.order_key AND _pauses_when_dead(d.type))),
    r AS (
      DELETE FROM holds o
      USING (
        SELECT k.id, k.key FROM k
        UNION ALL
        SELECT d.id, _queue_key(d.queue) FROM d WHERE has_queue_limits) x
      WHERE o.key = x.key
        AND o.job_id = x.id
      RETURNING o.key)
  SELECT
    array_agg(d.id) FILTER (WHERE d.schedule_id IS NOT NULL),
    array_agg(d.id) FILTER (WHERE d.awaited),
    array_agg(d.tenant) FILTER (WHERE d.awaited),
    array_agg(_dependency_outcome(d.state, d.error)) FILTER (WHERE d.awaited),
    -- Returns all limit keys of the jobs, not only those that were held: a job that held none may
    -- have been the first of its ordered key, or the next to start, and so kept others waiting.
    (
      SELECT array_agg(x.key)
      FROM (
        SELECT k.key FROM k
        UNION ALL
        SELECT r.key FROM r WHERE _is_queue_key(r.key)) x)
  INTO scheduled, parents, tenants, outcomes, freed
  FROM d;
  IF num_nonnulls(scheduled, parents) > 0 THEN
    children := _report_endings(scheduled, parents, tenants, outcomes, t);
  END IF;
END $$;

-- Closes the slots of the jobs in `scheduled`, which have ended. Records the outcomes of those in
-- `parents`, of these tenants, and returns the jobs that wait for them.
CREATE OR REPLACE FUNCTION _report_endings(
  scheduled uuid[],
  parents uuid[],
  tenants text[],
  outcomes text[],
  t timestamptz
)
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  IF scheduled IS NOT NULL THEN PERFORM _close_slots(scheduled, t); END IF;
  RETURN CASE
      WHEN parents IS NOT NULL THEN _record_parent_endings(parents, tenants, outcomes, t)
    END;
END $$;

-- Says whether any queue has a limit. Only then a running job may hold the key of its queue.
CREATE OR REPLACE FUNCTION _has_queue_limits()
RETURNS boolean
LANGUAGE sql STABLE
AS $$
  SELECT EXISTS (SELECT FROM limit_states s WHERE s.key >= 'queue:' AND s.key < 'queue;')
$$;

-- Says whether a dead job of this type keeps its ordered key, so that later jobs of the key wait.
CREATE OR REPLACE FUNCTION _pauses_when_dead(type text)
RETURNS boolean
LANGUAGE sql STABLE
AS $$
  SELECT EXISTS (
    SELECT
    FROM limits l
    WHERE l.name = _order_name(_pauses_when_dead.type)
      AND l.when_dead = 'pause')
$$;

-- Returns the error of a canceled job, with the reason of its stop request.
CREATE OR REPLACE FUNCTION _cancel_error(id uuid, state text)
RETURNS jsonb
LANGUAGE sql STABLE
AS $$
  SELECT CASE
      WHEN _cancel_error.state = 'canceled' THEN jsonb_build_object(
        'kind', 'canceled',
        'message', coalesce(
          (SELECT c.reason FROM cancels c WHERE c.job_id = _cancel_error.id), 'canceled'))
    END
$$;

-- Queues jobs again that have not ended for good. A run that started and was not lost resets the
-- job's count of losses. Inserts unsupported types in sorted order, to avoid deadlocks. Returns the
-- limit keys that have a free place now; a job keeps its ordered key.
CREATE OR REPLACE FUNCTION _requeue_jobs(endings ending[], epoch bigint, t timestamptz)
RETURNS text[]
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  at_once boolean;
  ids uuid[];
BEGIN
  WITH due AS MATERIALIZED (
      SELECT
        e.*,
        j.run_at AS due_at,
        j.attempt + (e.outcome IN ('failed', 'timed_out'))::int AS spent,
        e.age IS NOT NULL OR e.outcome IN ('failed', 'timed_out', 'snoozed') AS started,
        CASE
          WHEN e.outcome IN ('released', 'unsupported') THEN NULL
          -- The caller has locked the job. So this statement sees each write that has committed
          -- before that, and a later one waits and sees that the job is suspended.
          WHEN e.outcome = 'suspended' THEN _find_wake_time(j.id, j.tenant, t, e.result)
          ELSE t + coalesce(e.delay, CASE
              WHEN e.outcome = 'snoozed' THEN interval '0'
              ELSE _backoff_seconds(p, j.attempt + 1) * interval '1 second'
            END)
        END AS at
      FROM unnest(endings) e
      JOIN jobs j ON j.id = e.id
      JOIN policies p ON p.id = j.policy
      WHERE e.state IN ('failed', 'queued')),
    u AS (
      UPDATE jobs j
      SET fence = 0,
        ended_at = t,
        attempt = due.spent,
        failed = (due.state = 'failed'),
        lane = _find_ready_lane(j.queue, j.route_key, j.lane),
        lost = CASE WHEN due.started THEN 0 ELSE j.lost END,
        expires_at = CASE WHEN due.started THEN NULL ELSE j.expires_at END,
        class = CASE
          WHEN j.class = 2 AND due.started THEN _job_class(j.max_attempts, j.limit_keys)
          ELSE j.class
        END,
        run_at = CASE WHEN due.at = 'infinity' THEN t ELSE coalesce(due.at, j.run_at) END,
        wait = CASE
          WHEN due.outcome = 'unsupported' THEN 'unsupported'
          WHEN due.at = 'infinity' THEN 'waiting'
          WHEN due.at > t THEN 'delayed'
        END,
        wait_key = CASE
          WHEN due.outcome = 'unsupported' THEN _unsupported_key(j.queue, j.type, j.version)
          WHEN due.outcome = 'suspended' AND due.at > t THEN 'steps'
        END
      FROM due
      WHERE j.id = due.id
        AND j.fence = due.fence
      RETURNING
        j.id, j.run, j.attempt, j.queue, j.type, j.version, j.tenant, j.wait, due.fence,
        due.outcome, due.age, due.error, due.due_at),
    s AS (
      INSERT INTO unsupported_types (type, version, since)
      SELECT DISTINCT u.type, u.version, t
      FROM u
      WHERE u.outcome = 'unsupported'
      ORDER BY 1, 2
      ON CONFLICT DO NOTHING),
    a AS (
      INSERT INTO attempts (
        job_id, run, attempt, fence, epoch, outcome, due_at, started_at, ended_at, queue, type,
        tenant, error, failure)
      SELECT
        u.id, u.run, u.attempt, u.fence, epoch, u.outcome, u.due_at, _started_at(t, u.age), t,
        u.queue, u.type, u.tenant, u.error,
        CASE WHEN u.outcome IN ('failed', 'timed_out') THEN _failure_of(u.type, u.error) END
      FROM u
      WHERE u.outcome IN ('failed', 'timed_out')
        OR u.outcome NOT IN ('unsupported', 'suspended') AND u.age IS NOT NULL)
  SELECT bool_or(coalesce(u.wait NOT IN ('delayed', 'waiting'), true)), array_agg(u.id)
  INTO at_once, ids
  FROM u;
  IF at_once THEN PERFORM _wake_workers(''); END IF;
  RETURN _release_holds(ids);
END $$;

-- Releases the limit keys that these jobs hold, because the jobs are queued again. Does not release
-- ordered keys. The caller has locked the jobs. Returns a key once for each place that is free now.
CREATE OR REPLACE FUNCTION _release_holds(ids uuid[])
RETURNS text[]
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  has_queue_limits boolean := _has_queue_limits();
  freed text[];
BEGIN
  WITH r AS (
    DELETE FROM holds h
    USING (
      SELECT j.id, k.key
      FROM jobs j
      CROSS JOIN LATERAL unnest(
        j.limit_keys || CASE WHEN has_queue_limits THEN _queue_key(j.queue) END) k(key)
      WHERE j.id = ANY (ids)
        AND k.key IS DISTINCT FROM j.order_key) x
    WHERE h.key = x.key
      AND h.job_id = x.id
    RETURNING h.key)
  SELECT array_agg(r.key) INTO freed FROM r;
  RETURN freed;
END $$;

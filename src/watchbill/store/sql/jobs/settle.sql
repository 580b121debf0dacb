-- Settles a batch of runs. Changes a job only under the fence that it has now. Without `outcomes`
-- all runs have succeeded. Otherwise an outcome is one of:
--   succeeded, skipped   the job is succeeded
--   failed, timed_out    the job has another attempt after `delays` (NULL: as its policy says), or
--                        is dead when its attempts are spent or error.kind is 'permanent'
--   snoozed              the job is queued again after `delays`, without using up an attempt
--   released             the job is queued again with its old run_at, without using up an attempt
--   suspended            the job waits in a step until its wake time, without using up an attempt;
--                        the result is a list of the names of the steps in which it waits
--   undone               the job has undone its steps, and is dead, or canceled by error.kind
--   unsupported          the job is queued for a node that knows its type and version
--   canceled             the job is canceled; without a stop request it counts as failed
-- A job with a stop request ends as canceled unless it has succeeded. `ages` are the seconds since
-- each handler started, NULL if it did not start. `closed` are claims without jobs, which are
-- deleted. Returns the jobs that have not succeeded; their state is NULL if the job has another
-- fence. Also returns, with the state `blocked`, jobs that wait for the settled ones: next call
-- unblock() with their ids. Locks the jobs, and waits two seconds for a job that is locked; then
-- locked_jobs() finds that job. After that locks the states of their limit keys. The function sets
-- lock_timeout itself, because a session behind a pooler cannot.
CREATE OR REPLACE FUNCTION settle(
  epoch bigint,
  ids uuid[],
  fences bigint[],
  outcomes text[] DEFAULT NULL,
  ages float8[] DEFAULT NULL,
  delays interval[] DEFAULT NULL,
  results jsonb[] DEFAULT NULL,
  errors jsonb[] DEFAULT NULL,
  closed bigint[] DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS TABLE (id uuid, state text, run_at timestamptz)
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '2s'
AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  got uuid[];
  unsettled uuid[];
  stopping uuid[];
  scheduled uuid[];
  parents uuid[];
  tenants text[]; -- of the parents
  -- The jobs that may hold limit keys, and the keys of each as an array literal, because an array
  -- of arrays cannot have rows of different lengths.
  holders uuid[];
  held text[];
  freed text[];
BEGIN
  IF _may_be_bound() THEN PERFORM _check_shared_change('settle'); END IF;
  PERFORM _check_isolation('settle');
  IF outcomes IS NOT NULL THEN
    RETURN QUERY
      SELECT *
      FROM _settle_each(epoch, ids, fences, outcomes, ages, delays, results, errors, t, true);
  ELSE
    WITH d AS (
        DELETE FROM jobs j
        USING unnest(ids, fences, ages, results) i(id, fence, age, result)
        WHERE j.id = i.id
          AND j.fence = i.fence
          AND i.fence <> 0
        RETURNING
          j.id, j.seq, j.run_at, j.created_at, j.fence, j.schedule_id, j.slot, j.lane, j.run,
          j.policy, j.timeout, j.version, j.priority, j.attempt, j.max_attempts, j.queue, j.type,
          j.tenant, j.idempotency_key, j.route_key, j.limit_keys, j.order_key, j.created_by,
          j.payload, j.meta, j.canceling, j.awaited, i.age, i.result),
      h AS (
        INSERT INTO finished_succeeded (
          id, seq, run_at, created_at, started_at, finished_at, fence, epoch, schedule_id, slot,
          lane, run, policy, timeout, version, priority, attempt, max_attempts, lost, state, queue,
          type, tenant, idempotency_key, route_key, limit_keys, order_key, created_by, payload,
          meta, result)
        SELECT
          d.id, d.seq, d.run_at, d.created_at, _started_at(t, d.age), t, d.fence, epoch,
          d.schedule_id, d.slot, d.lane, d.run, d.policy, d.timeout, d.version, d.priority,
          d.attempt + 1, d.max_attempts, 0, 'succeeded', d.queue, d.type, d.tenant,
          d.idempotency_key, d.route_key, d.limit_keys, d.order_key, d.created_by, d.payload,
          d.meta, d.result
        FROM d)
    SELECT
      array_agg(d.id),
      array_agg(d.id) FILTER (WHERE d.canceling),
      array_agg(d.id) FILTER (WHERE d.schedule_id IS NOT NULL),
      array_agg(d.id) FILTER (WHERE d.awaited),
      array_agg(d.tenant) FILTER (WHERE d.awaited),
      array_agg(d.id) FILTER (WHERE k.keys IS NOT NULL),
      array_agg(k.keys::text) FILTER (WHERE k.keys IS NOT NULL)
    INTO got, stopping, scheduled, parents, tenants, holders, held
    FROM d
    CROSS JOIN LATERAL (
      SELECT
        CASE
          WHEN (
            SELECT EXISTS (
              SELECT FROM limit_states s WHERE s.key >= 'queue:' AND s.key < 'queue;'))
            THEN d.limit_keys || ('queue:' || d.queue)
          ELSE d.limit_keys
        END AS keys) k;
    -- Most batches hold no key, and have no stop request, slot or child: they run none of these.
    IF holders IS NOT NULL THEN freed := _delete_holds(holders, held); END IF;
    IF stopping IS NOT NULL THEN
      DELETE FROM cancels c WHERE c.job_id = ANY (stopping);
    END IF;
    IF num_nonnulls(scheduled, parents) > 0 THEN
      RETURN QUERY
        SELECT c, 'blocked', NULL::timestamptz
        FROM unnest(_report_endings(
          scheduled, parents, tenants,
          array_fill('succeeded'::text, ARRAY[coalesce(cardinality(parents), 0)]), t)) c;
    END IF;
    IF coalesce(cardinality(got), 0) < cardinality(ids) THEN
      unsettled := ARRAY(SELECT x FROM unnest(ids) x WHERE x <> ALL (coalesce(got, '{}')));
      PERFORM _unpark_completed(unsettled, freed, t);
      RETURN QUERY SELECT x.id, NULL::text, NULL::timestamptz FROM unnest(unsettled) x(id);
    END IF;
    IF freed IS NOT NULL THEN PERFORM _unpark_freed(freed, t); END IF;
  END IF;
  IF closed IS NOT NULL THEN
    DELETE FROM claims c WHERE c.fence = ANY (closed) AND c.epoch = epoch;
  END IF;
END $$;

-- Deletes what ended jobs hold: of each job the limit keys in `keys`, an array literal. Returns a
-- key once for each place that is free now.
CREATE OR REPLACE FUNCTION _delete_holds(ids uuid[], keys text[])
RETURNS text[]
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  freed text[];
BEGIN
  WITH r AS (
    DELETE FROM holds o
    WHERE o.ctid = ANY (ARRAY(
      SELECT x.ctid
      FROM unnest(ids, keys) h(id, keys)
      CROSS JOIN LATERAL unnest(h.keys::text[]) k(key)
      -- LIMIT makes every plan look up the holds one by one, instead of reading all holds for each
      -- job.
      CROSS JOIN LATERAL (
        SELECT x.ctid FROM holds x WHERE x.key = k.key AND x.job_id = h.id LIMIT 1) x))
    RETURNING o.key)
  SELECT array_agg(r.key) INTO freed FROM r;
  RETURN freed;
END $$;

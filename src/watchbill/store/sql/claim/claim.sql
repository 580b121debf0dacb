-- Takes up to `max` ready jobs of these queues for a node, in the order of the queues given, within
-- each by priority, run_at, id; of a fair queue in turns. Returns them in no order; `turn` is the
-- turn of a fair or routed queue, and jobs of an earlier turn start first.
--   free      how many jobs can start at once; NULL: `max`. Jobs of class 1, which have one attempt
--             or a rate, are never taken ahead of that, and neither are jobs that come after one
--   alone     take one job in quarantine, and no other
--   floor_*   scan positions to start from, at most one per queue and priority; without them the
--             scan starts at the top (docs/explanation/scan_positions.md)
--   without   types to skip, because the node cannot run more of them now; starts at the top and
--             takes nothing ahead
--   for_tenant  take jobs of this tenant only. A session that acts for a tenant always does. It
--             takes nothing ahead and reads at most 1,000 jobs of others in a round, of which there
--             are several only if no job that it picked may start. The next round, and the next
--             claim of the node, go on from there (claim/pick_for_tenant.sql)
-- Locks, in this order, and skips what another transaction has locked:
--   1. the pauses, if there are any
--   2. jobs that have expired, which it ends
--   3. of each queue with a limit the state of this limit, before jobs of the queue
--   4. the jobs
--   5. the states of their limit keys
--   6. the row of the node FOR KEY SHARE. reclaim() locks it FOR UPDATE, so no claim commits after
--      its node was declared lost
-- It waits only for a transaction that makes one of these states for the first time, and only while
-- it has locked no state itself. A claim that finds nothing writes nothing.
-- docs/explanation/flow_control.md describes the steps.
CREATE OR REPLACE FUNCTION claim(
  epoch bigint,
  queues text[] DEFAULT '{default}',
  max int DEFAULT 1,
  free int DEFAULT NULL,
  alone boolean DEFAULT false,
  floor_queues text[] DEFAULT NULL,
  floor_priorities smallint[] DEFAULT NULL,
  floor_times timestamptz[] DEFAULT NULL,
  floor_ids uuid[] DEFAULT NULL,
  without text[] DEFAULT NULL,
  now timestamptz DEFAULT NULL,
  for_tenant text DEFAULT NULL
)
RETURNS TABLE (
  id uuid,
  fence bigint,
  type text,
  payload jsonb,
  queue text,
  tenant text,
  priority smallint,
  run_at timestamptz,
  run int,
  attempt smallint,
  max_attempts smallint,
  version int,
  timeout real,
  meta jsonb,
  limit_keys text[],
  turn int
)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  rules claim_rules;
  picked pick;
  tids tid[];
  f bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    PERFORM _check_isolation('claim');
  END IF;
  IF coalesce(max, -1) < 0 OR free < 0 THEN
    RAISE EXCEPTION 'max % or free % is invalid', coalesce(max::text, 'NULL'), free
      USING ERRCODE = 'WB003', HINT = 'give how many jobs to take, or can start at once: 0 or more';
  END IF;
  rules := _read_claim_rules(epoch, queues, for_tenant, t);
  rules.slots := least(free, max); -- `max`, if `free` is NULL
  rules.max := CASE WHEN rules.tenant IS NULL THEN max ELSE rules.slots END;
  rules.alone := alone IS TRUE;
  IF without IS NOT NULL AND NOT rules.alone THEN
    rules.without := without;
  ELSIF floor_queues IS NOT NULL THEN
    rules.floors := ARRAY(
      SELECT ROW(f.queue, f.priority, f.run_at, f.id)::scan_floor
      FROM unnest(floor_queues, floor_priorities, floor_times, floor_ids)
        f(queue, priority, run_at, id));
  END IF;
  -- At most 1,000, and none that is locked. If one of the others is picked, the round ends it.
  IF rules.has_expired_jobs THEN PERFORM _expire_jobs(1000, '-infinity', t); END IF;
  picked := _pick_in_rounds(rules, t);
  IF cardinality(picked.jobs) = 0 THEN RETURN; END IF;
  f := _lock_node_and_make_fence(rules);
  -- NULL: another transaction changes the node's state. The next claim reports it.
  IF f IS NULL THEN RETURN; END IF;
  IF picked.is_limited OR cardinality(picked.limited_queues) > 0 THEN
    PERFORM _hold_keys(picked);
  END IF;
  IF cardinality(rules.declared_queues) > 0
    AND EXISTS (SELECT FROM unnest(picked.jobs) p WHERE p.turn > 0) THEN
    RETURN QUERY SELECT * FROM _take_in_turns(rules.epoch, f, picked.jobs, t);
    RETURN;
  END IF;
  tids := coalesce(picked.tids, ARRAY(SELECT p.tid FROM unnest(picked.jobs) p));
  -- Here and not in a function of its own, which would copy each job once more.
  RETURN QUERY
    WITH u AS (
        UPDATE jobs j
        SET fence = f, run = j.run + 1
        WHERE j.ctid = ANY (tids)
        RETURNING
          j.id, j.type, j.payload, j.queue, j.tenant, j.priority, j.run_at, j.run, j.attempt,
          j.max_attempts, j.version, j.timeout, j.meta, j.limit_keys),
      c AS (
        INSERT INTO claims (fence, epoch, job_ids, at)
        SELECT f, rules.epoch, array_agg(u.id), t FROM u)
    SELECT
      u.id, f, u.type, u.payload, u.queue, u.tenant, u.priority, u.run_at, u.run, u.attempt,
      u.max_attempts, u.version, u.timeout, u.meta, u.limit_keys, 0
    FROM u;
END $$;

-- Reads what a claim of these queues has to mind. One statement looks for all rare cases, because
-- each statement delays every claim. Raises unless the node is active. Locks the pauses.
CREATE OR REPLACE FUNCTION _read_claim_rules(
  epoch bigint, queues text[], for_tenant text, t timestamptz
)
RETURNS claim_rules
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  rules claim_rules;
  node_state text;
  any_paused boolean;
BEGIN
  SELECT
    n.state,
    n.assignment,
    _acting_tenant(for_tenant),
    CASE
      WHEN EXISTS (SELECT FROM label_sets) THEN _find_label_lanes(n.name, n.labels)
      ELSE '{0}'
    END,
    ARRAY(
      SELECT q.name
      FROM queues q
      WHERE q.name = ANY (queues)
        AND (q.lanes <> 'none' OR q.max IS NOT NULL)),
    EXISTS (SELECT FROM pauses),
    EXISTS (SELECT FROM unsupported_types),
    EXISTS (SELECT FROM jobs j WHERE j.expires_at <= t AND j.fence = 0),
    EXISTS (
      SELECT
      FROM unnest(queues) q(queue)
      CROSS JOIN LATERAL (
        SELECT
        FROM jobs j
        WHERE j.queue = q.queue
          AND j.class = 1
          AND j.lane = 0
          AND j.wait IS NULL
          AND j.fence = 0
        LIMIT 1) x)
  INTO
    node_state, rules.assignment, rules.tenant, rules.lanes, rules.declared_queues, any_paused,
    rules.has_unsupported_types, rules.has_expired_jobs, rules.has_once
  FROM nodes n
  WHERE n.epoch = epoch;
  IF node_state IS DISTINCT FROM 'active' THEN
    RAISE EXCEPTION 'the node with epoch % is %', epoch, coalesce(node_state, 'unknown')
      USING ERRCODE = CASE node_state WHEN 'draining' THEN 'WB006' ELSE 'WB001' END;
  END IF;
  rules.epoch := epoch;
  rules.queues := queues;
  rules.has_paused_types := false;
  IF any_paused THEN
    -- resume() waits until this claim has committed, and so finds the jobs that it sets aside. SKIP
    -- LOCKED: the claim does not wait for a resume().
    PERFORM FROM pauses FOR KEY SHARE SKIP LOCKED;
    rules.queues := _unpaused_queues(queues);
    rules.has_paused_types := EXISTS (SELECT FROM pauses p WHERE p.type IS NOT NULL);
  END IF;
  RETURN rules;
END $$;

-- Picks the jobs that a claim takes: those that are ready, without those whose type is paused or
-- whose limit is reached. Locks them and the states of their keys.
CREATE OR REPLACE FUNCTION _pick_in_rounds(rules claim_rules, t timestamptz)
RETURNS pick
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  picked pick;
BEGIN
  -- Another round follows if no picked job may start, because its type is paused or its limit is
  -- reached, or if another claim is busy with the same queue or limit.
  FOR round IN 1..10 LOOP
    picked := _pick_jobs(rules, round, t);
    IF cardinality(picked.jobs) = 0 AND picked.is_busy THEN
      -- Another claim takes jobs of a queue with a limit, and ends soon. This one must not find
      -- nothing, because its worker would sleep.
      PERFORM pg_sleep(0.001 * round);
      IF round = 10 THEN PERFORM pg_notify(_wake_channel(), 'ready '); END IF;
      CONTINUE;
    END IF;
    -- Usually nothing stands in the way of the jobs. A later round has picked more than `max`, so
    -- it has to judge them in any case.
    EXIT WHEN cardinality(picked.jobs) = 0
      OR round = 1
        AND NOT picked.is_limited
        AND NOT rules.has_paused_types
        AND NOT rules.has_expired_jobs;
    IF rules.has_expired_jobs THEN
      picked.jobs := _leave_out_expired_jobs(picked.jobs, t);
    END IF;
    IF rules.has_paused_types THEN picked.jobs := _set_paused_jobs_aside(picked.jobs); END IF;
    -- A claim that has locked the state of a queue must not wait for another transaction: that one
    -- may wait for this state.
    picked := _pass_limits(
      picked, rules.max, rules.slots,
      round = 1 AND coalesce(cardinality(picked.limited_queues), 0) = 0, t);
    -- A node without a free slot can start no job, so another round would be of no use to it.
    EXIT WHEN cardinality(picked.jobs) > 0 OR rules.slots = 0;
    -- The next round has to look into class 1: if a rate was declared after its jobs were enqueued,
    -- _pass_limits() has moved them there.
    rules.has_once := true;
    -- The other transaction with the state of the key ends soon.
    IF picked.is_busy THEN PERFORM pg_sleep(0.001 * round); END IF;
    -- There may be a job after those that were set aside, so a worker must not sleep now.
    IF round = 10 THEN PERFORM pg_notify(_wake_channel(), 'ready '); END IF;
  END LOOP;
  RETURN picked;
END $$;

-- Locks the row of the node and makes the fence of a claim. The caller has locked the jobs before,
-- so the fences of a job only grow. NULL if the node is no longer as the claim has read it.
CREATE OR REPLACE FUNCTION _lock_node_and_make_fence(rules claim_rules)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  generation int;
  is_copy boolean;
BEGIN
  SELECT
    i.generation,
    (i.server_started_at, i.jobs_oid, i.database_oid) IS DISTINCT FROM (
      pg_postmaster_start_time(), 'jobs'::regclass::oid,
      (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
  INTO generation, is_copy
  FROM nodes n
  CROSS JOIN installation i
  WHERE n.epoch = rules.epoch
    AND n.state = 'active'
    AND n.assignment = rules.assignment
  FOR KEY SHARE OF n SKIP LOCKED;
  IF NOT FOUND THEN RETURN NULL; END IF;
  IF is_copy THEN generation := _adopt_database(); END IF;
  RETURN _make_fence(generation);
END $$;

-- As the last statement of claim(), with the turn of each job: for fair and routed queues.
CREATE OR REPLACE FUNCTION _take_in_turns(
  epoch bigint,
  f bigint,
  jobs picked_job[],
  t timestamptz
)
RETURNS SETOF claimed_job
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
BEGIN
  RETURN QUERY
    WITH u AS (
        UPDATE jobs j
        SET fence = f, run = j.run + 1
        FROM unnest(jobs) p
        WHERE j.ctid = p.tid
        RETURNING
          j.id, j.type, j.payload, j.queue, j.tenant, j.priority, j.run_at, j.run, j.attempt,
          j.max_attempts, j.version, j.timeout, j.meta, j.limit_keys, p.turn),
      c AS (
        INSERT INTO claims (fence, epoch, job_ids, at)
        SELECT f, epoch, array_agg(u.id), t FROM u)
    SELECT
      u.id, f, u.type, u.payload, u.queue, u.tenant, u.priority, u.run_at, u.run, u.attempt,
      u.max_attempts, u.version, u.timeout, u.meta, u.limit_keys, u.turn
    FROM u;
END $$;

-- Lets picked jobs hold their keys, and the keys of the queues that have a limit. The caller has
-- locked the jobs and the states of the keys.
CREATE OR REPLACE FUNCTION _hold_keys(picked pick)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
BEGIN
  INSERT INTO holds (key, job_id)
  SELECT k.key, j.id
  FROM jobs j
  CROSS JOIN LATERAL unnest(j.limit_keys) k(key)
  WHERE j.ctid = ANY (ARRAY(SELECT p.tid FROM unnest(picked.jobs) p WHERE p.is_limited))
    -- An ordered job that is tried again has kept its hold.
    AND (
      NOT _is_order_key(k.key)
      OR (SELECT true FROM holds o WHERE o.key = k.key AND o.job_id = j.id LIMIT 1) IS NULL);
  IF cardinality(picked.limited_queues) > 0 THEN
    INSERT INTO holds (key, job_id)
    SELECT _queue_key(j.queue), j.id
    FROM jobs j
    WHERE j.ctid = ANY (ARRAY(SELECT p.tid FROM unnest(picked.jobs) p))
      AND j.queue = ANY (picked.limited_queues);
  END IF;
END $$;

-- How many entries of the index jobs_ready this session has read since it last reported statistics.
CREATE OR REPLACE FUNCTION _count_ready_entries_read()
RETURNS bigint
LANGUAGE sql VOLATILE
RETURN pg_stat_get_xact_tuples_returned('jobs_ready'::regclass);

-- Takes up to `max` ready jobs of these queues for a node, in the order of the queues given, within
-- each by priority, run_at, id; of a fair queue in turns. Returns them in no order; `turn` is the
-- turn of a fair or routed queue, and jobs of an earlier turn start first.
--   free      how many jobs can start at once; jobs with one attempt or a rate are never taken
--             ahead of that, and neither are jobs that come after one of these
--   alone     take one job in quarantine, and no other
--   floor_*   scan positions to start from, at most one per queue and priority; without them the
--             scan starts at the top (docs/explanation/scan_positions.md)
--   without   types to skip, because the node cannot run more of them now; starts at the top and
--             takes nothing ahead
--   for_tenant  take jobs of this tenant only. A session that acts for a tenant always does. It
--             takes nothing ahead and reads at most 1,000 jobs of others; the next claim of the
--             node goes on from there (claim/pick_for_tenant.sql)
-- Locks the jobs, then the states of their limit keys, then the row of the node FOR KEY SHARE.
-- reclaim() locks that row FOR UPDATE, so no claim commits after its node was declared lost. Waits
-- for none of them. A claim that finds nothing locks and writes nothing. The settings make every
-- plan use the indexes. docs/explanation/flow_control.md describes the steps.
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
#variable_conflict use_column
DECLARE
  t timestamptz := _clock(claim.now);
  -- How many jobs can start at once.
  slots int := least(claim.free, claim.max);
  open_queues text[] := claim.queues;
  types_paused boolean := false;
  node_state text;
  node_assignment bigint;
  -- The tenant for which the session acts; NULL: all tenants.
  acting text;
  -- How many more jobs of others such a session reads. With those that one look at all lanes may
  -- read beyond that, it is 1,000.
  others_left int := 800;
  -- How many jobs to take.
  wanted int := claim.max;
  any_paused boolean;
  any_unsupported boolean;
  any_once boolean;
  -- The lanes that this node takes from in every queue: 0, and those of its labels.
  node_lanes int[];
  declared_queues text[];
  -- Those of them that have a limit: their jobs hold the key of the queue.
  limited_queues text[] := '{}';
  queues_with_places text[];
  tids tid[];
  turns int[];
  -- Whether each picked job has limit keys, and whether any has.
  limited boolean[];
  is_limited boolean;
  picked int;
  passed int[];
  is_busy boolean;
  generation int;
  is_copy boolean;
  f bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    PERFORM _check_isolation('claim');
  END IF;
  IF coalesce(claim.max, -1) < 0 THEN
    RAISE EXCEPTION 'max % is invalid', coalesce(claim.max::text, 'NULL')
      USING ERRCODE = 'WB003', HINT = 'give how many jobs to take: 0 or more';
  END IF;
  -- One statement looks for all rare cases, because each statement delays every claim.
  SELECT
    n.state,
    n.assignment,
    _acting_tenant(claim.for_tenant),
    CASE
      WHEN EXISTS (SELECT FROM label_sets) THEN _find_label_lanes(n.labels)
      ELSE '{0}'
    END,
    ARRAY(
      SELECT q.name
      FROM queues q
      WHERE q.name = ANY (claim.queues)
        AND (q.lanes <> 'none' OR q.max IS NOT NULL)),
    EXISTS (SELECT FROM pauses),
    EXISTS (SELECT FROM unsupported_types),
    EXISTS (
      SELECT
      FROM unnest(claim.queues) q(queue)
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
    node_state, node_assignment, acting, node_lanes, declared_queues, any_paused, any_unsupported,
    any_once
  FROM nodes n
  WHERE n.epoch = claim.epoch;
  IF node_state IS DISTINCT FROM 'active' THEN
    RAISE EXCEPTION 'the node with epoch % is %', claim.epoch, coalesce(node_state, 'unknown')
      USING ERRCODE = CASE node_state WHEN 'draining' THEN 'WB006' ELSE 'WB001' END;
  END IF;
  IF any_paused THEN
    -- resume() waits until this claim has committed, and so finds the jobs that it sets aside. SKIP
    -- LOCKED: the claim does not wait for a resume().
    PERFORM FROM pauses FOR KEY SHARE SKIP LOCKED;
    open_queues := _unpaused_queues(claim.queues);
    types_paused := EXISTS (SELECT FROM pauses p WHERE p.type IS NOT NULL);
  END IF;
  IF acting IS NOT NULL THEN wanted := coalesce(slots, claim.max); END IF;
  -- Another round follows if no picked job may start, because its type is paused or its limit is
  -- reached, or if another claim is busy with the same queue or limit. Later rounds pick more jobs,
  -- to find those that come after many jobs that may not start.
  FOR round IN 1..10 LOOP
    is_busy := false;
    picked := CASE WHEN round = 1 OR claim.alone THEN wanted ELSE greatest(wanted, 1000) END;
    IF acting IS NOT NULL THEN
      SELECT p.tids, p.limited, p.limited_queues, p.is_busy, p.others_left
      INTO tids, limited, limited_queues, is_busy, others_left
      FROM _pick_for_tenant(
        acting, claim.epoch, open_queues, declared_queues, node_lanes, claim.alone, picked,
        claim.without, others_left) p;
    ELSIF claim.alone THEN
      SELECT * INTO queues_with_places, limited_queues, is_busy
      FROM _find_queues_with_places(open_queues, declared_queues);
      SELECT p.tids, p.limited INTO tids, limited
      FROM _pick_quarantined(claim.epoch, queues_with_places, node_lanes) p;
      IF cardinality(tids) = 0 AND any_unsupported THEN
        SELECT p.tids, p.limited INTO tids, limited
        FROM _pick_jobs_others_do_not_support(
          claim.epoch, queues_with_places, node_lanes, 1, true, NULL, true, NULL) p;
      END IF;
    ELSIF any_once
        OR cardinality(node_lanes) > 1
        OR cardinality(declared_queues) > 0
        OR claim.without IS NOT NULL THEN
      SELECT p.tids, p.turns, p.limited, p.limited_queues, p.is_busy
      INTO tids, turns, limited, limited_queues, is_busy
      FROM _pick_by_queue(
        claim.epoch, open_queues, declared_queues, node_lanes,
        CASE WHEN claim.without IS NULL THEN picked ELSE coalesce(slots, picked) END,
        coalesce(slots, picked), claim.without, claim.floor_queues,
        claim.floor_priorities, claim.floor_times, claim.floor_ids, t) p;
    ELSE
      SELECT p.tids, p.limited INTO tids, limited
      FROM _pick(
        open_queues, 0::smallint, 0, picked, NULL, claim.floor_queues, claim.floor_priorities,
        claim.floor_times, claim.floor_ids, t) p;
    END IF;
    IF any_unsupported AND claim.alone IS NOT TRUE AND cardinality(tids) < claim.max THEN
      SELECT * INTO queues_with_places, limited_queues, is_busy
      FROM _find_queues_with_places(open_queues, declared_queues);
      SELECT tids || p.found, limited || p.found_limited INTO tids, limited
      FROM _pick_jobs_others_do_not_support(
        claim.epoch, queues_with_places, node_lanes,
        CASE
          WHEN slots > cardinality(tids) THEN slots - cardinality(tids)
          ELSE least(slots, claim.max - cardinality(tids))
        END,
        false, claim.without, slots > cardinality(tids), acting) p(found, found_limited);
      passed := _find_queue_places(tids, limited_queues);
      IF turns IS NOT NULL THEN turns := ARRAY(SELECT turns[p] FROM unnest(passed) p); END IF;
      limited := ARRAY(SELECT limited[p] FROM unnest(passed) p);
      tids := ARRAY(SELECT tids[p] FROM unnest(passed) p);
    END IF;
    is_limited := true = ANY (limited);
    IF cardinality(tids) = 0 AND is_busy THEN
      -- Another claim takes jobs of a queue with a limit, and ends soon. This one must not find
      -- nothing, because its worker would sleep.
      PERFORM pg_sleep(0.001 * round);
      CONTINUE;
    END IF;
    EXIT WHEN cardinality(tids) = 0 OR is_limited IS NOT TRUE AND NOT types_paused AND round = 1;
    IF types_paused THEN
      passed := _set_paused_jobs_aside(tids);
    ELSE
      passed := ARRAY(SELECT generate_subscripts(tids, 1));
    END IF;
    is_busy := false;
    IF is_limited OR cardinality(passed) > wanted THEN
      SELECT g.passed, g.is_busy INTO passed, is_busy
      FROM _pass_limits(
        tids, limited, passed, wanted, coalesce(slots, wanted), round = 1, t) g;
    END IF;
    IF cardinality(passed) < cardinality(tids) THEN
      IF turns IS NOT NULL THEN turns := ARRAY(SELECT turns[p] FROM unnest(passed) p); END IF;
      limited := ARRAY(SELECT limited[p] FROM unnest(passed) p);
      tids := ARRAY(SELECT tids[p] FROM unnest(passed) p);
    END IF;
    -- A node without a free slot can start no job, so another round would be of no use to it.
    EXIT WHEN cardinality(tids) > 0 OR slots = 0;
    -- Jobs whose rate was declared after they were enqueued are in class 1 now.
    any_once := true;
    -- The other transaction with the state of the key ends soon.
    IF is_busy THEN PERFORM pg_sleep(0.001 * round); END IF;
    -- Perhaps there is a job behind those that were set aside: a worker must not sleep now.
    IF round = 10 THEN PERFORM pg_notify(_wake_channel(), 'ready '); END IF;
  END LOOP;
  IF cardinality(tids) = 0 THEN RETURN; END IF;
  SELECT
    i.generation,
    (i.server_started_at, i.jobs_oid, i.database_oid) IS DISTINCT FROM (
      pg_postmaster_start_time(), 'jobs'::regclass::oid,
      (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
  INTO generation, is_copy
  FROM nodes n
  CROSS JOIN installation i
  WHERE n.epoch = claim.epoch
    AND n.state = 'active'
    AND n.assignment = node_assignment
  FOR KEY SHARE OF n SKIP LOCKED;
  -- Not found: another transaction changes the node's state. The next claim reports it.
  IF NOT FOUND THEN RETURN; END IF;
  IF is_copy THEN generation := _adopt_database(); END IF;
  -- Made after the jobs are locked, so that the fences of a job only grow.
  f := _make_fence(generation);
  IF is_limited OR cardinality(limited_queues) > 0 THEN
    PERFORM _hold_keys(tids, limited, limited_queues);
  END IF;
  IF 0 < ANY (turns) THEN
    RETURN QUERY
      SELECT * FROM _take_in_turns(claim.epoch, f, tids, turns, t);
    RETURN;
  END IF;
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
        SELECT f, claim.epoch, array_agg(u.id), t FROM u)
    SELECT
      u.id, f, u.type, u.payload, u.queue, u.tenant, u.priority, u.run_at, u.run, u.attempt,
      u.max_attempts, u.version, u.timeout, u.meta, u.limit_keys, 0
    FROM u;
END $$;

-- The _pick functions lock what they return, without waiting for locks, and need the settings of
-- claim(). LATERAL under an outer LIMIT locks only what it returns. `limited` says which of the
-- picked jobs have limit keys, so that _pass_limits() has to decide.

-- Picks the first ready jobs of a class and a lane, from the scan positions (floors) on if there
-- are any. With floors it goes through the priorities of each queue from the highest on: a priority
-- with a floor starts there, the others at their beginning. Floors are at least 250 ms old, so that
-- jobs that commit or are promoted within that time are above them.
CREATE OR REPLACE FUNCTION _pick(
  queues text[],
  class smallint,
  lane int,
  max int,
  without text[],
  floor_queues text[],
  floor_priorities smallint[],
  floor_times timestamptz[],
  floor_ids uuid[],
  t timestamptz,
  OUT tids tid[],
  OUT limited boolean[]
)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
  latest timestamptz := t - interval '250 milliseconds';
BEGIN
  IF floor_queues IS NULL THEN
    SELECT array_agg(x.ctid), array_agg(x.is_limited) INTO tids, limited
    FROM (
      SELECT y.ctid, y.is_limited
      FROM unnest(_pick.queues) q(queue)
      CROSS JOIN LATERAL (
        SELECT j.ctid, j.limit_keys IS NOT NULL AS is_limited
        FROM jobs j
        WHERE j.queue = q.queue
          AND j.class = _pick.class
          AND j.lane = _pick.lane
          AND j.wait IS NULL
          AND j.fence = 0
          AND (_pick.without IS NULL OR j.type <> ALL (_pick.without))
        ORDER BY j.priority DESC, j.run_at, j.id
        LIMIT _pick.max
        FOR UPDATE SKIP LOCKED) y
      LIMIT _pick.max) x;
  ELSE
    SELECT array_agg(x.ctid), array_agg(x.is_limited) INTO tids, limited
    FROM (
      SELECT y.ctid, y.is_limited
      FROM _scan_ranges(
        _pick.queues, floor_queues, floor_priorities, floor_times, floor_ids, latest) s
      CROSS JOIN LATERAL (
        SELECT a.*
        FROM (
          SELECT j.ctid, j.limit_keys IS NOT NULL AS is_limited
          FROM jobs j
          WHERE s.floor IS NOT NULL
            AND j.queue = s.queue
            AND j.class = _pick.class
            AND j.lane = _pick.lane
            AND j.priority = s.floor
            AND (j.run_at, j.id) > (s.at, s.id)
            AND j.wait IS NULL
            AND j.fence = 0
          ORDER BY j.run_at, j.id
          LIMIT _pick.max
          FOR UPDATE SKIP LOCKED) a
        UNION ALL
        SELECT b.*
        FROM (
          SELECT j.ctid, j.limit_keys IS NOT NULL AS is_limited
          FROM jobs j
          WHERE s.floor IS NULL
            AND j.queue = s.queue
            AND j.class = _pick.class
            AND j.lane = _pick.lane
            AND j.priority < s.below
            AND j.priority > s.above
            AND j.wait IS NULL
            AND j.fence = 0
          ORDER BY j.priority DESC, j.run_at, j.id
          LIMIT _pick.max
          FOR UPDATE SKIP LOCKED) b) y
      LIMIT _pick.max) x;
  END IF;
  tids := coalesce(tids, '{}');
  limited := coalesce(limited, '{}');
END $$;

-- The ranges of the ready index that a claim reads, in its order: from each floor on, and all
-- priorities between two floors. BEGIN ATOMIC binds its names when it is made, so it needs no
-- search_path, and the planner can write it into the query that calls it.
CREATE OR REPLACE FUNCTION _scan_ranges(
  queues text[],
  floor_queues text[],
  floor_priorities smallint[],
  floor_times timestamptz[],
  floor_ids uuid[],
  latest timestamptz
)
RETURNS TABLE (queue text, floor smallint, at timestamptz, id uuid, below int, above int)
LANGUAGE sql STABLE
BEGIN ATOMIC
  WITH f AS (
    SELECT *
    FROM unnest(floor_queues, floor_priorities, floor_times, floor_ids)
      f(queue, priority, at, id))
  SELECT q.queue, s.*
  FROM unnest(queues) WITH ORDINALITY q(queue, n)
  CROSS JOIN LATERAL (
    SELECT
      f.priority AS floor,
      least(f.at, latest) AS at,
      CASE
        WHEN f.at > latest THEN '00000000-0000-0000-0000-000000000000'
        ELSE f.id
      END AS id,
      NULL::int AS below,
      NULL::int AS above
    FROM f
    WHERE f.queue = q.queue
    UNION ALL
    SELECT
      NULL, NULL, NULL, lag(g.priority, 1, 32768) OVER (ORDER BY g.priority DESC), g.priority
    FROM (
      SELECT f.priority::int FROM f WHERE f.queue = q.queue
      UNION ALL
      SELECT -32769) g(priority)) s
  ORDER BY q.n, coalesce(s.floor, s.above) DESC, s.floor NULLS FIRST;
END;

-- Lets picked jobs hold their keys, and the keys of the queues that have a limit. The caller has
-- locked the jobs and the states of the keys.
CREATE OR REPLACE FUNCTION _hold_keys(tids tid[], limited boolean[], limited_queues text[])
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  INSERT INTO holds (key, job_id)
  SELECT k.key, j.id
  FROM jobs j
  CROSS JOIN LATERAL unnest(j.limit_keys) k(key)
  WHERE j.ctid = ANY (ARRAY(
      SELECT x.tid FROM unnest(tids, limited) x(tid, is_limited) WHERE x.is_limited))
    -- An ordered job that is tried again has kept its hold.
    AND (
      NOT starts_with(k.key, 'order:')
      OR (SELECT true FROM holds o WHERE o.key = k.key AND o.job_id = j.id LIMIT 1) IS NULL);
  IF cardinality(limited_queues) = 0 THEN RETURN; END IF;
  INSERT INTO holds (key, job_id)
  SELECT 'queue:' || j.queue, j.id
  FROM jobs j
  WHERE j.ctid = ANY (tids)
    AND j.queue = ANY (limited_queues);
END $$;

-- Writes the fence to the picked jobs of a fair or routed queue, and records the claim. Returns the
-- turn of each job.
CREATE OR REPLACE FUNCTION _take_in_turns(
  epoch bigint,
  fence bigint,
  tids tid[],
  turns int[],
  t timestamptz
)
RETURNS TABLE (
  id uuid,
  fence_ bigint,
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
#variable_conflict use_column
BEGIN
  RETURN QUERY
    WITH u AS (
        UPDATE jobs j
        SET fence = _take_in_turns.fence, run = j.run + 1
        FROM unnest(tids, turns) p(tid, turn)
        WHERE j.ctid = p.tid
        RETURNING
          j.id, j.type, j.payload, j.queue, j.tenant, j.priority, j.run_at, j.run, j.attempt,
          j.max_attempts, j.version, j.timeout, j.meta, j.limit_keys, p.turn),
      c AS (
        INSERT INTO claims (fence, epoch, job_ids, at)
        SELECT _take_in_turns.fence, _take_in_turns.epoch, array_agg(u.id), t FROM u)
    SELECT
      u.id, _take_in_turns.fence, u.type, u.payload, u.queue, u.tenant, u.priority, u.run_at, u.run,
      u.attempt, u.max_attempts, u.version, u.timeout, u.meta, u.limit_keys, coalesce(u.turn, 0)
    FROM u;
END $$;

-- How many entries of the index jobs_ready this session has read since it last reported statistics.
CREATE OR REPLACE FUNCTION _count_ready_entries_read()
RETURNS bigint
LANGUAGE sql VOLATILE
RETURN pg_stat_get_xact_tuples_returned('jobs_ready'::regclass);

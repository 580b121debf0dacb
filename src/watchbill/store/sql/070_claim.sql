-- Takes up to `max` ready jobs of these queues for a node, in the order of the queues given, within each by priority, run_at, id.
--   free      how many of them can start at once: jobs that have one attempt are never taken ahead
--   alone     take one job that is to run alone, and nothing else
--   floor_*   start above these positions, at most one per queue and priority, instead of from the top (docs/explanation/floors.md)
--   without   leave jobs of these types where they are: the node has no place for them now; from the top, whatever the floors, and nothing ahead
-- The node row is locked FOR KEY SHARE once there is something to take: that meets the FOR UPDATE of reclaim, so no claim commits after its node was
-- declared lost. It comes after the jobs, so nobody is waited for; a claim that finds nothing locks nothing, and so writes nothing.
-- Rows come in no order; the caller sorts.
CREATE OR REPLACE FUNCTION claim(
  epoch bigint, queues text[] DEFAULT '{default}', max int DEFAULT 1, free int DEFAULT NULL, alone boolean DEFAULT false, lanes int[] DEFAULT '{0}',
  floor_queues text[] DEFAULT NULL, floor_priorities smallint[] DEFAULT NULL, floor_times timestamptz[] DEFAULT NULL, floor_ids uuid[] DEFAULT NULL,
  without text[] DEFAULT NULL, now timestamptz DEFAULT NULL
) RETURNS TABLE (id uuid, fence bigint, type text, payload jsonb, queue text, tenant text, priority smallint, run_at timestamptz, run int,
  attempt smallint, max_attempts smallint, version int, timeout real, meta jsonb)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(claim.now, clock());
  open_queues text[] := claim.queues;
  types_paused boolean := false;
  node_state text;
  any_paused boolean;
  any_unsupported boolean;
  any_once boolean;
  tids tid[] := '{}';
  generation int;
  f bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN PERFORM check_isolation('claim'); END IF;
  IF coalesce(claim.max, -1) < 0 THEN
    RAISE EXCEPTION 'max cannot be %', coalesce(claim.max::text, 'NULL') USING ERRCODE = 'WB003', HINT = 'how many jobs to take: 0 or more';
  END IF;
  -- One look at what is rare: each statement of a claim is paid for by every job that an idle worker picks up.
  SELECT (SELECT n.state FROM nodes n WHERE n.epoch = claim.epoch), EXISTS (SELECT FROM pauses), EXISTS (SELECT FROM unsupported_types),
      EXISTS (SELECT FROM unnest(claim.queues) q(queue) CROSS JOIN unnest(claim.lanes) l(lane) CROSS JOIN LATERAL (SELECT FROM jobs j
        WHERE j.queue = q.queue AND j.lane = l.lane AND j.wait IS NULL AND j.max_attempts = 1 AND NOT (j.alone OR j.limited) AND j.fence = 0 LIMIT 1) x)
    INTO node_state, any_paused, any_unsupported, any_once;
  IF node_state IS DISTINCT FROM 'active' THEN
    RAISE EXCEPTION 'node % is %', claim.epoch, coalesce(node_state, 'unknown') USING ERRCODE = CASE node_state WHEN 'draining' THEN 'WB006' ELSE 'WB001' END;
  END IF;
  IF any_paused THEN
    PERFORM FROM pauses FOR KEY SHARE SKIP LOCKED;       -- resume waits for us, and then finds what we put aside; we do not wait for one under way
    open_queues := unpaused(claim.queues);
    types_paused := EXISTS (SELECT FROM pauses p WHERE p.type IS NOT NULL);
  END IF;
  FOR round IN 1..100 LOOP                               -- again only after a round that met nothing but paused types
    IF claim.alone THEN
      tids := pick_alone(open_queues, claim.lanes);
      IF cardinality(tids) = 0 AND any_unsupported THEN
        tids := pick_unsupported(claim.epoch, open_queues, 1, true, NULL);
      END IF;
    ELSIF claim.without IS NOT NULL THEN
      tids := pick_others(open_queues, claim.lanes, claim.without, least(claim.free, claim.max));
    ELSE
      IF any_once THEN
        tids := pick_once(open_queues, claim.lanes, least(claim.free, claim.max), claim.floor_queues, claim.floor_priorities, claim.floor_times, claim.floor_ids, t);
      END IF;
      IF claim.floor_queues IS NULL THEN
        tids := tids || pick_ready(open_queues, claim.lanes, claim.max - cardinality(tids));
      ELSE
        tids := tids || pick_above(open_queues, claim.lanes, claim.floor_queues, claim.floor_priorities, claim.floor_times, claim.floor_ids,
          claim.max - cardinality(tids), t);
      END IF;
    END IF;
    IF claim.alone IS NOT TRUE AND cardinality(tids) < claim.max AND any_unsupported THEN
      tids := tids || pick_unsupported(claim.epoch, open_queues, least(claim.free, claim.max - cardinality(tids)), false, claim.without);
    END IF;
    EXIT WHEN cardinality(tids) = 0 OR NOT types_paused;
    tids := park_paused(tids);
    EXIT WHEN cardinality(tids) > 0;
  END LOOP;
  IF cardinality(tids) = 0 THEN RETURN; END IF;
  SELECT i.generation INTO generation FROM nodes n CROSS JOIN installation i WHERE n.epoch = claim.epoch AND n.state = 'active' FOR KEY SHARE OF n SKIP LOCKED;
  IF NOT FOUND THEN RETURN; END IF;                      -- its state is being changed this moment: the next claim will tell
  f := fence_of(generation);                             -- drawn while the rows are locked: it only grows for each job
  RETURN QUERY WITH u AS (UPDATE jobs j SET fence = f, run = j.run + 1 WHERE j.ctid = ANY (tids)
      RETURNING j.id, j.type, j.payload, j.queue, j.tenant, j.priority, j.run_at, j.run, j.attempt, j.max_attempts, j.version, j.timeout, j.meta),
    c AS (INSERT INTO claims (fence, epoch, job_ids, at) SELECT f, claim.epoch, array_agg(u.id), t FROM u)
  SELECT u.id, f, u.type, u.payload, u.queue, u.tenant, u.priority, u.run_at, u.run, u.attempt, u.max_attempts, u.version, u.timeout, u.meta FROM u;
END $$;

CREATE OR REPLACE FUNCTION check_isolation(verb text) RETURNS void LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION '% needs READ COMMITTED, this transaction is %', verb, upper(current_setting('transaction_isolation')) USING ERRCODE = 'WB005',
      HINT = 'start it with BEGIN ISOLATION LEVEL READ COMMITTED';
  END IF;
END $$;

-- Each picks and locks the heads of one index; LATERAL under an outer LIMIT locks only what it returns.
-- The planner's settings are claim's: each SET costs every claim.
CREATE OR REPLACE FUNCTION pick_ready(queues text[], lanes int[], max int) RETURNS tid[]
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN ARRAY(SELECT x.ctid FROM unnest(queues) q(queue) CROSS JOIN unnest(lanes) l(lane) CROSS JOIN LATERAL (
    SELECT j.ctid FROM jobs j WHERE j.queue = q.queue AND j.lane = l.lane AND j.wait IS NULL AND j.max_attempts > 1 AND NOT (j.alone OR j.limited) AND j.fence = 0
    ORDER BY j.priority DESC, j.run_at, j.id LIMIT max FOR UPDATE SKIP LOCKED) x LIMIT max);
END $$;

-- Jobs with one attempt start at once or are not taken: those that are among the first `first` in the order of both indexes, which is looked up without locks.
CREATE OR REPLACE FUNCTION pick_once(queues text[], lanes int[], first int, floor_queues text[], floor_priorities smallint[], floor_times timestamptz[], floor_ids uuid[],
  t timestamptz) RETURNS tid[]
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
  latest timestamptz := t - interval '250 milliseconds';
  max int;
BEGIN
  SELECT count(*) FILTER (WHERE x.once) INTO max FROM (SELECT y.once FROM unnest(queues) q(queue) CROSS JOIN unnest(lanes) l(lane) CROSS JOIN LATERAL (
    SELECT h.once FROM (
      (SELECT true AS once, j.priority, j.run_at, j.id FROM jobs j
        WHERE j.queue = q.queue AND j.lane = l.lane AND j.wait IS NULL AND j.max_attempts = 1 AND NOT (j.alone OR j.limited) AND j.fence = 0
        ORDER BY j.priority DESC, j.run_at, j.id LIMIT first)
      UNION ALL
      (SELECT false, j.priority, j.run_at, j.id FROM jobs j
        WHERE floor_queues IS NULL AND j.queue = q.queue AND j.lane = l.lane AND j.wait IS NULL AND j.max_attempts > 1 AND NOT (j.alone OR j.limited) AND j.fence = 0
        ORDER BY j.priority DESC, j.run_at, j.id LIMIT first)
      UNION ALL
      SELECT false, r.* FROM unnest(floor_queues, floor_priorities, floor_times, floor_ids) f(queue, priority, at, id) CROSS JOIN LATERAL (
        SELECT j.priority, j.run_at, j.id FROM jobs j WHERE j.queue = f.queue AND j.lane = l.lane AND j.priority = f.priority
          AND (j.run_at, j.id) > (least(f.at, latest), CASE WHEN f.at > latest THEN '00000000-0000-0000-0000-000000000000' ELSE f.id END)
          AND j.wait IS NULL AND j.max_attempts > 1 AND NOT (j.alone OR j.limited) AND j.fence = 0
        ORDER BY j.run_at, j.id LIMIT first) r WHERE f.queue = q.queue) h
    ORDER BY h.priority DESC, h.run_at, h.id LIMIT first) y LIMIT first) x;
  RETURN ARRAY(SELECT x.ctid FROM unnest(queues) q(queue) CROSS JOIN unnest(lanes) l(lane) CROSS JOIN LATERAL (
    SELECT j.ctid FROM jobs j WHERE j.queue = q.queue AND j.lane = l.lane AND j.wait IS NULL AND j.max_attempts = 1 AND NOT (j.alone OR j.limited) AND j.fence = 0
    ORDER BY j.priority DESC, j.run_at, j.id LIMIT max FOR UPDATE SKIP LOCKED) x LIMIT max);
END $$;

CREATE OR REPLACE FUNCTION pick_alone(queues text[], lanes int[]) RETURNS tid[]
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN ARRAY(SELECT x.ctid FROM unnest(queues) q(queue) CROSS JOIN unnest(lanes) l(lane) CROSS JOIN LATERAL (
    SELECT j.ctid FROM jobs j WHERE j.queue = q.queue AND j.lane = l.lane AND j.wait IS NULL AND j.alone AND NOT j.limited AND j.fence = 0
    ORDER BY j.priority DESC, j.run_at, j.id LIMIT 1 FOR UPDATE SKIP LOCKED) x LIMIT 1);
END $$;

-- Per queue the priorities from the highest to the lowest: those with a floor from there on, and between them, from their beginning, those without.
-- A floor is never later than 250 ms ago: what commits or is promoted within that time is above it.
CREATE OR REPLACE FUNCTION pick_above(queues text[], lanes int[], floor_queues text[], floor_priorities smallint[], floor_times timestamptz[], floor_ids uuid[],
  max int, t timestamptz) RETURNS tid[]
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
  latest timestamptz := t - interval '250 milliseconds';
BEGIN
  RETURN ARRAY(SELECT x.ctid FROM (
      WITH f AS (SELECT * FROM unnest(floor_queues, floor_priorities, floor_times, floor_ids) f(queue, priority, at, id))
      SELECT q.queue, s.* FROM unnest(queues) WITH ORDINALITY q(queue, n) CROSS JOIN LATERAL (
        SELECT f.priority AS floor, least(f.at, latest) AS at, CASE WHEN f.at > latest THEN '00000000-0000-0000-0000-000000000000' ELSE f.id END AS id,
            NULL::int AS below, NULL::int AS above FROM f WHERE f.queue = q.queue
        UNION ALL
        SELECT NULL, NULL, NULL, lag(g.priority, 1, 32768) OVER (ORDER BY g.priority DESC), g.priority
          FROM (SELECT f.priority::int FROM f WHERE f.queue = q.queue UNION ALL SELECT -32769) g(priority)) s
      ORDER BY q.n, coalesce(s.floor, s.above) DESC, s.floor NULLS FIRST) s
    CROSS JOIN unnest(lanes) l(lane) CROSS JOIN LATERAL (
      SELECT a.ctid FROM (SELECT j.ctid FROM jobs j WHERE s.floor IS NOT NULL AND j.queue = s.queue AND j.lane = l.lane AND j.priority = s.floor
          AND (j.run_at, j.id) > (s.at, s.id) AND j.wait IS NULL AND j.max_attempts > 1 AND NOT (j.alone OR j.limited) AND j.fence = 0
        ORDER BY j.run_at, j.id LIMIT max FOR UPDATE SKIP LOCKED) a
      UNION ALL
      SELECT b.ctid FROM (SELECT j.ctid FROM jobs j WHERE s.floor IS NULL AND j.queue = s.queue AND j.lane = l.lane AND j.priority < s.below AND j.priority > s.above
          AND j.wait IS NULL AND j.max_attempts > 1 AND NOT (j.alone OR j.limited) AND j.fence = 0
        ORDER BY j.priority DESC, j.run_at, j.id LIMIT max FOR UPDATE SKIP LOCKED) b) x LIMIT max);
END $$;

-- The first of all types but these, of both indexes: looked up without locks, some more than wanted, and taken as far as nobody else keeps them.
CREATE OR REPLACE FUNCTION pick_others(queues text[], lanes int[], without text[], max int) RETURNS tid[]
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
  heads tid[] := ARRAY(SELECT x.ctid FROM unnest(queues) q(queue) CROSS JOIN unnest(lanes) l(lane) CROSS JOIN LATERAL (
      (SELECT j.ctid FROM jobs j WHERE j.type <> ALL (without)
        AND j.queue = q.queue AND j.lane = l.lane AND j.wait IS NULL AND j.max_attempts = 1 AND NOT (j.alone OR j.limited) AND j.fence = 0
        ORDER BY j.priority DESC, j.run_at, j.id LIMIT max + 20)
      UNION ALL
      (SELECT j.ctid FROM jobs j WHERE j.type <> ALL (without)
        AND j.queue = q.queue AND j.lane = l.lane AND j.wait IS NULL AND j.max_attempts > 1 AND NOT (j.alone OR j.limited) AND j.fence = 0
        ORDER BY j.priority DESC, j.run_at, j.id LIMIT max + 20)) x);
BEGIN
  RETURN ARRAY(SELECT j.ctid FROM jobs j WHERE j.ctid = ANY (heads) AND j.wait IS NULL AND j.fence = 0
    ORDER BY array_position(queues, j.queue), j.priority DESC, j.run_at, j.id LIMIT max FOR UPDATE SKIP LOCKED);
END $$;

-- Jobs that another node gave back because it does not know their type or version, and this one does.
CREATE OR REPLACE FUNCTION pick_unsupported(epoch bigint, queues text[], max int, alone boolean, without text[]) RETURNS tid[]
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
BEGIN
  RETURN ARRAY(SELECT x.ctid FROM unnest(pick_unsupported.queues) q(queue) CROSS JOIN unsupported_types u
      JOIN node_types n ON n.epoch = pick_unsupported.epoch AND n.type = u.type AND n.version >= u.version
    CROSS JOIN LATERAL (
      SELECT j.ctid FROM jobs j WHERE j.queue = q.queue AND j.type = u.type AND j.version = u.version AND j.wait = 'unsupported' AND j.alone = pick_unsupported.alone AND j.fence = 0
      ORDER BY j.priority DESC, j.run_at, j.id LIMIT pick_unsupported.max FOR UPDATE SKIP LOCKED) x
    WHERE u.type <> ALL (coalesce(pick_unsupported.without, '{}')) LIMIT pick_unsupported.max);
END $$;

CREATE OR REPLACE FUNCTION unpaused(queues text[]) RETURNS text[] LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT coalesce(array_agg(q.queue ORDER BY q.n), '{}') FROM unnest(unpaused.queues) WITH ORDINALITY q(queue, n)
  WHERE NOT EXISTS (SELECT FROM pauses p WHERE p.queue = q.queue AND p.type IS NULL) $$;

-- Puts aside those of the picked jobs whose type is paused, so that they are walked once and not by every claim; returns the others.
CREATE OR REPLACE FUNCTION park_paused(tids tid[]) RETURNS tid[]
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
  paused tid[] := ARRAY(SELECT j.ctid FROM jobs j WHERE j.ctid = ANY (tids)
    AND EXISTS (SELECT FROM pauses p WHERE p.type = j.type AND (p.queue IS NULL OR p.queue = j.queue)));
BEGIN
  UPDATE jobs j SET wait = 'paused' WHERE j.ctid = ANY (paused);
  RETURN ARRAY(SELECT x FROM unnest(tids) x WHERE x <> ALL (paused));
END $$;

-- Makes due jobs ready, on any node, and says when the next one is due. `since` spares a frequent caller the walk over
-- long promoted entries that an old snapshot keeps in the index.
CREATE OR REPLACE FUNCTION promote(max int DEFAULT 1000, since timestamptz DEFAULT '-infinity', now timestamptz DEFAULT NULL) RETURNS timestamptz
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(promote.now, clock());       -- a variable: a volatile function is no index condition
  n int;
BEGIN
  PERFORM check_isolation('promote');
  UPDATE jobs j SET wait = NULL WHERE j.ctid = ANY (ARRAY(
    SELECT d.ctid FROM jobs d WHERE d.wait = 'delayed' AND d.run_at <= t AND d.run_at >= promote.since ORDER BY d.run_at LIMIT promote.max FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS n = ROW_COUNT;
  IF n > 0 THEN PERFORM wake(''); END IF;
  RETURN (SELECT j.run_at FROM jobs j WHERE j.wait = 'delayed' AND j.run_at >= greatest(promote.since, CASE WHEN n < promote.max THEN t END)
    ORDER BY j.run_at LIMIT 1);                          -- what is due and still there is locked by somebody: whoever asked at once again would ask all the time
END $$;

-- Entries of the ready index that this session has read and not yet reported: the difference around a claim tells what it walked over.
CREATE OR REPLACE FUNCTION ready_entries_read() RETURNS bigint LANGUAGE sql VOLATILE RETURN pg_stat_get_xact_tuples_returned('jobs_ready'::regclass);

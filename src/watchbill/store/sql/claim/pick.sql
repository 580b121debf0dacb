-- How claim() picks jobs. The _pick functions need its settings, and lock what they return without
-- waiting for locks. LATERAL under an outer LIMIT locks only what it returns.

-- Picks the jobs of one round of a claim, each kind of claim in its own way. Later rounds pick more
-- jobs, to find those that come after many jobs that may not start.
CREATE OR REPLACE FUNCTION _pick_jobs(rules claim_rules, round int, t timestamptz)
RETURNS pick
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  max int := CASE WHEN round = 1 THEN rules.max ELSE greatest(rules.max, 1000) END;
  picked pick;
  tids tid[];
  are_limited boolean[];
BEGIN
  IF rules.tenant IS NOT NULL THEN
    picked := _pick_for_tenant(rules, max);
  ELSIF rules.alone THEN
    picked := _pick_alone(rules);
  ELSIF rules.has_once
    OR cardinality(rules.lanes) > 1
    OR cardinality(rules.declared_queues) > 0
    OR rules.without IS NOT NULL THEN
    picked := _pick_by_queue(rules, max, t);
  ELSE
    SELECT p.tids, p.are_limited
    INTO tids, are_limited
    FROM _pick(rules.queues, 0::smallint, 0, max, NULL, rules.floors, t) p;
    IF round = 1
      AND cardinality(tids) > 0
      AND NOT (
        rules.has_unsupported_types
        OR rules.has_paused_types
        OR rules.has_expired_jobs
        OR true = ANY (are_limited)) THEN
      -- Most claims need to know no more of each job, and so take less time.
      picked.tids := tids;
      picked.is_limited := false;
      RETURN picked;
    END IF;
    picked.jobs := _describe_picked(tids, are_limited);
  END IF;
  IF rules.has_unsupported_types
    AND NOT rules.alone
    AND cardinality(picked.jobs) < rules.max THEN
    picked := _add_jobs_others_do_not_support(rules, picked.jobs);
  END IF;
  picked.is_limited := EXISTS (SELECT FROM unnest(picked.jobs) p WHERE p.is_limited);
  RETURN picked;
END $$;

-- Picks the first ready jobs of a class and a lane: queue by queue, each from its highest priority
-- on. `are_limited` says of each whether it has limit keys. `floors` are places up to which an
-- earlier claim has read a priority; such a priority is read from there on, so that the index
-- entries of claimed jobs are not read again. A job may become visible a moment after its run_at,
-- so a floor younger than 250 ms counts as one of that age.
CREATE OR REPLACE FUNCTION _pick(
  queues text[],
  class smallint,
  lane int,
  max int,
  without text[],
  floors scan_floor[],
  t timestamptz,
  OUT tids tid[],
  OUT are_limited boolean[]
)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
BEGIN
  SELECT coalesce(array_agg(z.tid), '{}'), coalesce(array_agg(z.is_limited), '{}')
  INTO tids, are_limited
  FROM (
    SELECT y.*
    FROM _scan_ranges(queues, floors, t - interval '250 milliseconds') s
    CROSS JOIN LATERAL (
      SELECT a.*
      FROM (
        SELECT j.ctid AS tid, j.limit_keys IS NOT NULL AS is_limited
        FROM jobs j
        WHERE s.floor IS NOT NULL
          AND j.queue = s.queue
          AND j.class = class
          AND j.lane = lane
          AND j.priority = s.floor
          AND (j.run_at, j.id) > (s.run_at, s.id)
          AND j.wait IS NULL
          AND j.fence = 0
        ORDER BY j.run_at, j.id
        LIMIT max
        FOR UPDATE SKIP LOCKED) a
      UNION ALL
      SELECT b.*
      FROM (
        SELECT j.ctid, j.limit_keys IS NOT NULL
        FROM jobs j
        WHERE s.floor IS NULL
          AND j.queue = s.queue
          AND j.class = class
          AND j.lane = lane
          AND j.priority < s.below
          AND j.priority > s.above
          AND j.wait IS NULL
          AND j.fence = 0
          AND (without IS NULL OR j.type <> ALL (without))
        ORDER BY j.priority DESC, j.run_at, j.id
        LIMIT max
        FOR UPDATE SKIP LOCKED) b) y
    LIMIT max) z;
END $$;

-- The jobs of _pick() as those of the other ways to pick.
CREATE OR REPLACE FUNCTION _describe_picked(tids tid[], are_limited boolean[])
RETURNS picked_job[]
LANGUAGE plpgsql IMMUTABLE
AS $$
#variable_conflict use_variable
BEGIN
  RETURN ARRAY(
    SELECT ROW(x.tid, 0, x.is_limited)::picked_job
    FROM unnest(tids, are_limited) x(tid, is_limited));
END $$;

-- As _pick(), of one queue, with what decides about the order of the jobs. Locks nothing.
CREATE OR REPLACE FUNCTION _list_first_jobs(
  queue text,
  class smallint,
  lane int,
  max int,
  without text[],
  floors scan_floor[],
  t timestamptz
)
RETURNS TABLE (tid tid, priority smallint, run_at timestamptz, id uuid)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
BEGIN
  RETURN QUERY
    SELECT y.*
    FROM _scan_ranges(ARRAY[queue], floors, t - interval '250 milliseconds') s
    CROSS JOIN LATERAL (
      (
        SELECT j.ctid, j.priority, j.run_at, j.id
        FROM jobs j
        WHERE s.floor IS NOT NULL
          AND j.queue = s.queue
          AND j.class = class
          AND j.lane = lane
          AND j.priority = s.floor
          AND (j.run_at, j.id) > (s.run_at, s.id)
          AND j.wait IS NULL
          AND j.fence = 0
        ORDER BY j.run_at, j.id
        LIMIT max)
      UNION ALL
      (
        SELECT j.ctid, j.priority, j.run_at, j.id
        FROM jobs j
        WHERE s.floor IS NULL
          AND j.queue = s.queue
          AND j.class = class
          AND j.lane = lane
          AND j.priority < s.below
          AND j.priority > s.above
          AND j.wait IS NULL
          AND j.fence = 0
          AND (without IS NULL OR j.type <> ALL (without))
        ORDER BY j.priority DESC, j.run_at, j.id
        LIMIT max)) y
    LIMIT max;
END $$;

-- The ranges of the ready index that a claim reads, in its order: one from each floor on, and one
-- of the priorities between two floors, `below` one and `above` the other. Without floors, one
-- for each queue. BEGIN ATOMIC binds its names when it is made, so it needs no search_path, and the
-- planner can write it into the query that calls it.
CREATE OR REPLACE FUNCTION _scan_ranges(
  queues text[],
  floors scan_floor[],
  latest timestamptz
)
RETURNS TABLE (queue text, floor smallint, run_at timestamptz, id uuid, below int, above int)
LANGUAGE sql STABLE
BEGIN ATOMIC
  SELECT q.queue, s.*
  FROM unnest(queues) WITH ORDINALITY q(queue, n)
  CROSS JOIN LATERAL (
    SELECT
      f.priority AS floor,
      least(f.run_at, latest) AS run_at,
      CASE
        WHEN f.run_at > latest THEN '00000000-0000-0000-0000-000000000000'
        ELSE f.id
      END AS id,
      NULL::int AS below,
      NULL::int AS above
    FROM unnest(floors) f
    WHERE f.queue = q.queue
    UNION ALL
    SELECT
      NULL, NULL, NULL, lag(g.priority, 1, 32768) OVER (ORDER BY g.priority DESC), g.priority
    FROM (
      SELECT f.priority::int FROM unnest(floors) f WHERE f.queue = q.queue
      UNION ALL
      SELECT -32769) g(priority)) s
  ORDER BY q.n, coalesce(s.floor, s.above) DESC, s.floor NULLS FIRST;
END;

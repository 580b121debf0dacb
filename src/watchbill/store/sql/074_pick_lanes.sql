-- How claim() picks jobs of fair and routed queues. These functions need its settings.

-- The lanes of a fair queue that have ready jobs, from the one behind `after` on, then round; at
-- most `max`. Reads one index entry per lane. Lane 0 has the jobs without a share: their enqueue
-- began before the queue became fair, or they were finished then and are run again.
CREATE OR REPLACE FUNCTION _find_share_lanes(queue text, after int, max int)
RETURNS int[]
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  -- Few queues have jobs that are not claimed ahead.
  has_once boolean := EXISTS (
    SELECT
    FROM jobs j
    WHERE j.queue = _find_share_lanes.queue
      AND j.class = 1
      AND j.wait IS NULL
      AND j.fence = 0);
BEGIN
  RETURN ARRAY(
    WITH RECURSIVE turn AS (
      SELECT _find_share_lanes.after AS lane, 0 AS round
      UNION ALL
      SELECT n.lane, n.round
      FROM turn
      CROSS JOIN LATERAL (
        SELECT
          coalesce(x.lane, -1) AS lane,
          turn.round + (x.lane IS NULL)::int AS round
        FROM (
          SELECT least(
            (
              SELECT j.lane
              FROM jobs j
              WHERE j.queue = _find_share_lanes.queue
                AND j.class = 0
                AND j.lane > turn.lane
                AND j.wait IS NULL
                AND j.fence = 0
              ORDER BY j.lane
              LIMIT 1),
            (
              SELECT j.lane
              FROM jobs j
              WHERE has_once
                AND j.queue = _find_share_lanes.queue
                AND j.class = 1
                AND j.lane > turn.lane
                AND j.wait IS NULL
                AND j.fence = 0
              ORDER BY j.lane
              LIMIT 1)) AS lane
          OFFSET 0) x) n
      WHERE n.round = 0 OR n.round = 1 AND n.lane <= _find_share_lanes.after)
    SELECT turn.lane
    FROM turn
    WHERE turn.lane >= 0
    OFFSET 1
    LIMIT _find_share_lanes.max);
END $$;

-- As _find_share_lanes(), with the first job of each lane, for queues without jobs of class 1.
CREATE OR REPLACE FUNCTION _find_share_heads(
  queue text,
  after int,
  max int,
  OUT lanes int[],
  OUT heads tid[]
)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  part record;
  found record;
BEGIN
  lanes := '{}';
  heads := '{}';
  FOR part IN
    SELECT _find_share_heads.after AS lower, 2147483647 AS last
    UNION ALL
    SELECT -1, _find_share_heads.after
  LOOP
    WITH RECURSIVE turn AS (
      (
        SELECT j.lane, j.ctid
        FROM jobs j
        WHERE j.queue = _find_share_heads.queue
          AND j.class = 0
          AND j.lane > part.lower
          AND j.lane <= part.last
          AND j.wait IS NULL
          AND j.fence = 0
        ORDER BY j.lane, j.priority DESC, j.run_at, j.id
        LIMIT 1)
      UNION ALL
      SELECT n.lane, n.ctid
      FROM turn
      CROSS JOIN LATERAL (
        SELECT j.lane, j.ctid
        FROM jobs j
        WHERE j.queue = _find_share_heads.queue
          AND j.class = 0
          AND j.lane > turn.lane
          AND j.lane <= part.last
          AND j.wait IS NULL
          AND j.fence = 0
        ORDER BY j.lane, j.priority DESC, j.run_at, j.id
        LIMIT 1) n)
    SELECT array_agg(x.lane) AS lanes, array_agg(x.ctid) AS heads INTO found
    FROM (SELECT * FROM turn LIMIT _find_share_heads.max - cardinality(lanes)) x;
    lanes := lanes || found.lanes;
    heads := heads || found.heads;
    EXIT WHEN cardinality(lanes) >= _find_share_heads.max;
  END LOOP;
END $$;

-- Picks jobs of a fair queue, and of `label_lanes`. If as many shares have jobs as jobs are wanted,
-- it takes the first job of each, which the scan for lanes has found.
CREATE OR REPLACE FUNCTION _pick_fair(
  queue text,
  after int,
  label_lanes int[],
  max int,
  free int,
  without text[],
  OUT tids tid[],
  OUT turns int[],
  OUT limited boolean[],
  OUT cursor int
)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  lanes int[];
  heads tid[];
  picked_lanes int[];
  more record;
BEGIN
  tids := '{}';
  turns := '{}';
  limited := '{}';
  IF _pick_fair.without IS NULL
    AND cardinality(label_lanes) = 0
    AND NOT EXISTS (SELECT FROM shares s WHERE s.queue = _pick_fair.queue)
    AND NOT EXISTS (
      SELECT
      FROM jobs j
      WHERE j.queue = _pick_fair.queue
        AND j.class = 1
        AND j.wait IS NULL
        AND j.fence = 0) THEN
    SELECT h.* INTO lanes, heads
    FROM _find_share_heads(_pick_fair.queue, _pick_fair.after, _pick_fair.max) h;
  ELSE
    lanes := label_lanes || _find_share_lanes(_pick_fair.queue, _pick_fair.after, _pick_fair.max);
  END IF;
  IF cardinality(lanes) = 0 THEN RETURN; END IF;
  IF heads IS NULL OR cardinality(heads) < _pick_fair.max THEN
    SELECT p.* INTO tids, turns, limited, cursor
    FROM _pick_turns(
      _pick_fair.queue, lanes, _pick_fair.max, _pick_fair.free, _pick_fair.without) p;
    RETURN;
  END IF;
  cursor := lanes[_pick_fair.max];
  SELECT
    coalesce(array_agg(x.ctid), '{}'), coalesce(array_agg(x.is_limited), '{}'),
    coalesce(array_agg(x.lane), '{}')
  INTO tids, limited, picked_lanes
  FROM (
    SELECT y.*
    FROM (
      SELECT
        j.ctid, j.queue, j.class, j.lane, j.wait, j.fence, j.limit_keys IS NOT NULL AS is_limited
      FROM jobs j
      WHERE j.ctid = ANY (heads)
      -- Keeps the conditions outside: a plan for an empty table would read the index for them.
      OFFSET 0
      FOR UPDATE SKIP LOCKED) y
    WHERE y.queue = _pick_fair.queue
      AND y.class = 0
      AND y.wait IS NULL
      AND y.fence = 0
    -- If they share a limit, its places are given in this order.
    ORDER BY y.lane <= _pick_fair.after, y.lane) x;
  -- Other claims have taken some of them meanwhile.
  IF cardinality(tids) < _pick_fair.max THEN
    SELECT p.* INTO more
    FROM _pick_turns(
      _pick_fair.queue, ARRAY(SELECT unnest(lanes) EXCEPT SELECT unnest(picked_lanes)),
      _pick_fair.max - cardinality(tids), _pick_fair.free, NULL) p;
    tids := tids || more.tids;
    limited := limited || more.limited;
  END IF;
  turns := array_fill(0, ARRAY[cardinality(tids)]);
END $$;

-- The lanes of a routed queue that have ready jobs and from which this node may take them. Lane 0
-- is for all nodes. Lane n + 1 has the jobs of token n, and is for the node whose epoch owns the
-- token. Begins with the lane after `after`; after the last lane it goes on with lane 0. Returns
-- `max` lanes at most. To read few rows, it skips to the next lane that has a job, then to the next
-- token that the node owns, and so on.
CREATE OR REPLACE FUNCTION _find_route_lanes(
  queue text,
  token_group text,
  epoch bigint,
  after int,
  max int
)
RETURNS int[]
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  has_once boolean := EXISTS (
    SELECT
    FROM jobs j
    WHERE j.queue = _find_route_lanes.queue
      AND j.class = 1
      AND j.wait IS NULL
      AND j.fence = 0);
  lanes int[] := '{}';
  part record;
BEGIN
  FOR part IN
    SELECT _find_route_lanes.after + 1 AS first, 2147483647 AS last
    UNION ALL
    SELECT 0, _find_route_lanes.after
  LOOP
    lanes := lanes || ARRAY(
      WITH RECURSIVE leap AS (
        -- `found` has a job; `owned` is the first lane from there on whose token is ours.
        SELECT part.first AS probe, NULL::int AS found, NULL::int AS owned
        UNION ALL
        SELECT
          CASE WHEN o.owned = f.found THEN f.found + 1 ELSE o.owned END,
          f.found,
          o.owned
        FROM leap
        CROSS JOIN LATERAL (
          SELECT least(
            (
              SELECT j.lane
              FROM jobs j
              WHERE j.queue = _find_route_lanes.queue
                AND j.class = 0
                AND j.lane >= leap.probe
                AND j.wait IS NULL
                AND j.fence = 0
              ORDER BY j.lane
              LIMIT 1),
            (
              SELECT j.lane
              FROM jobs j
              WHERE has_once
                AND j.queue = _find_route_lanes.queue
                AND j.class = 1
                AND j.lane >= leap.probe
                AND j.wait IS NULL
                AND j.fence = 0
              ORDER BY j.lane
              LIMIT 1)) AS found
          OFFSET 0) f
        CROSS JOIN LATERAL (
          SELECT CASE
              WHEN f.found = 0 THEN 0
              ELSE (
                SELECT k.token + 1
                FROM tokens k
                WHERE k.token_group = _find_route_lanes.token_group
                  AND k.epoch = _find_route_lanes.epoch
                  AND k.token >= f.found - 1
                  AND k.next IS NULL
                ORDER BY k.token
                LIMIT 1)
            END AS owned
          OFFSET 0) o
        WHERE f.found <= part.last
          AND o.owned IS NOT NULL
          AND leap.probe < 2147483647)
      SELECT leap.found
      FROM leap
      WHERE leap.owned = leap.found
      LIMIT _find_route_lanes.max - cardinality(lanes));
    EXIT WHEN cardinality(lanes) >= _find_route_lanes.max;
  END LOOP;
  RETURN lanes;
END $$;

-- Picks jobs of these lanes of a queue in turns: `weight` jobs of each lane, then the next ones of
-- each. `turns` says in which round each job was picked, and `cursor` is the lane of the last one.
-- Jobs of class 1 are picked only into free slots.
CREATE OR REPLACE FUNCTION _pick_turns(
  queue text,
  lanes int[],
  max int,
  free int,
  without text[],
  OUT tids tid[],
  OUT turns int[],
  OUT limited boolean[],
  OUT cursor int
)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  -- Few queues have weights, or jobs that are not claimed ahead.
  weights int[] := CASE
      WHEN EXISTS (SELECT FROM shares s WHERE s.queue = _pick_turns.queue) THEN ARRAY(
        SELECT coalesce(s.weight, 1)
        FROM unnest(lanes) WITH ORDINALITY l(lane, n)
        LEFT JOIN shares s ON s.queue = _pick_turns.queue AND s.lane = l.lane
        ORDER BY l.n)
      ELSE array_fill(1, ARRAY[cardinality(lanes)])
    END;
  has_once boolean := free > 0 AND EXISTS (
    SELECT
    FROM jobs j
    WHERE j.queue = _pick_turns.queue
      AND j.class = 1
      AND j.wait IS NULL
      AND j.fence = 0);
  rounds int := greatest(
    1, ceil(_pick_turns.max::numeric / (SELECT sum(w) FROM unnest(weights) w))::int);
BEGIN
  WITH picked AS MATERIALIZED (
      SELECT x.*, l.n, l.lane, l.weight
      FROM unnest(lanes, weights) WITH ORDINALITY l(lane, weight, n)
      CROSS JOIN LATERAL (
        SELECT a.*
        FROM (
          SELECT
            j.ctid, j.class, j.priority, j.run_at, j.id, j.limit_keys IS NOT NULL AS is_limited
          FROM jobs j
          WHERE j.queue = _pick_turns.queue
            AND j.class = 0
            AND j.lane = l.lane
            AND j.wait IS NULL
            AND j.fence = 0
            AND (_pick_turns.without IS NULL OR j.type <> ALL (_pick_turns.without))
          ORDER BY j.priority DESC, j.run_at, j.id
          LIMIT l.weight * rounds
          FOR UPDATE SKIP LOCKED) a
        UNION ALL
        SELECT b.*
        FROM (
          SELECT
            j.ctid, j.class, j.priority, j.run_at, j.id, j.limit_keys IS NOT NULL AS is_limited
          FROM jobs j
          WHERE has_once
            AND j.queue = _pick_turns.queue
            AND j.class = 1
            AND j.lane = l.lane
            AND j.wait IS NULL
            AND j.fence = 0
            AND (_pick_turns.without IS NULL OR j.type <> ALL (_pick_turns.without))
          ORDER BY j.priority DESC, j.run_at, j.id
          LIMIT least(l.weight * rounds, _pick_turns.free)
          FOR UPDATE SKIP LOCKED) b) x
      LIMIT CASE WHEN rounds = 1 THEN _pick_turns.max END),
    ranked AS (
      SELECT
        p.*,
        (row_number() OVER (PARTITION BY p.n ORDER BY p.priority DESC, p.run_at, p.id) - 1)
          / p.weight AS turn
      FROM picked p),
    placed AS (
      SELECT
        r.*,
        row_number() OVER (ORDER BY r.turn, r.n, r.priority DESC, r.run_at, r.id) AS place
      FROM ranked r)
  SELECT
    coalesce(array_agg(p.ctid ORDER BY p.place), '{}'),
    coalesce(array_agg(p.turn::int ORDER BY p.place), '{}'),
    coalesce(array_agg(p.is_limited ORDER BY p.place), '{}'),
    (array_agg(p.lane ORDER BY p.place DESC))[1]
  INTO tids, turns, limited, cursor
  FROM placed p
  WHERE p.place <= _pick_turns.max
    AND (p.class = 0 OR p.place <= _pick_turns.free);
END $$;

-- Picks jobs of a routed queue. A lane costs three lookups in indexes, so it takes up to four jobs
-- of each lane, and more lanes if these have too few. Of jobs with limit keys it takes one of each
-- lane: the second is likely to wait for the first. `label_lanes` are taken too.
CREATE OR REPLACE FUNCTION _pick_routed(
  queue text,
  token_group text,
  epoch bigint,
  after int,
  label_lanes int[],
  max int,
  free int,
  without text[],
  OUT tids tid[],
  OUT turns int[],
  OUT limited boolean[],
  OUT cursor int
)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  few int := greatest(1, _pick_routed.max / 4);
  first_lanes int[] := _find_route_lanes(
    _pick_routed.queue, _pick_routed.token_group, _pick_routed.epoch, _pick_routed.after, few);
  more_lanes int[];
  more record;
BEGIN
  tids := '{}';
  turns := '{}';
  limited := '{}';
  IF cardinality(first_lanes) + cardinality(label_lanes) = 0 THEN RETURN; END IF;
  SELECT p.* INTO tids, turns, limited, cursor
  FROM _pick_turns(
    _pick_routed.queue, first_lanes || label_lanes, _pick_routed.max, _pick_routed.free, without) p;
  -- No other lane has jobs.
  IF cardinality(first_lanes) < few THEN RETURN; END IF;
  IF true = ANY (limited) THEN
    SELECT array_agg(p.tid ORDER BY p.n), array_agg(p.is_limited ORDER BY p.n) INTO tids, limited
    FROM unnest(tids, turns, limited) WITH ORDINALITY p(tid, turn, is_limited, n)
    WHERE p.turn = 0;
    turns := array_fill(0, ARRAY[cardinality(tids)]);
  END IF;
  IF cardinality(tids) >= _pick_routed.max THEN RETURN; END IF;
  more_lanes := ARRAY(
    SELECT l.lane
    FROM unnest(_find_route_lanes(
      _pick_routed.queue, _pick_routed.token_group, _pick_routed.epoch, first_lanes[few],
      _pick_routed.max - cardinality(tids))) WITH ORDINALITY l(lane, n)
    -- Our own locks do not keep us from picking a job twice.
    WHERE l.lane <> ALL (first_lanes)
    ORDER BY l.n);
  IF cardinality(more_lanes) = 0 THEN RETURN; END IF;
  SELECT p.* INTO more
  FROM _pick_turns(
    _pick_routed.queue, more_lanes, _pick_routed.max - cardinality(tids),
    greatest(0, _pick_routed.free - cardinality(tids)), without) p;
  tids := tids || more.tids;
  turns := turns || more.turns;
  limited := limited || more.limited;
  cursor := coalesce(more.cursor, cursor);
END $$;

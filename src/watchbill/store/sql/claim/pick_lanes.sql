-- How claim() picks jobs of fair and routed queues. These functions need its settings.

-- The lanes of a fair queue that have ready jobs, from the one behind `after` on, then round; at
-- most `max`. Reads one index entry per lane. Lane 0 has the jobs without a share: their enqueue
-- began before the queue became fair, or they were finished then and are run again.
CREATE OR REPLACE FUNCTION _find_share_lanes(queue text, after int, max int)
RETURNS int[]
LANGUAGE plpgsql STABLE
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
        SELECT j.lane, j.ctid, 1 AS number
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
      SELECT n.lane, n.ctid, turn.number + 1
      FROM turn
      CROSS JOIN LATERAL (
        (
          -- A scan without a near end reads the rest of its page of the index. The next lane is
          -- likely to be within twice the mean distance of those that were found.
          SELECT j.lane, j.ctid
          FROM jobs j
          WHERE j.queue = _find_share_heads.queue
            AND j.class = 0
            AND j.lane > turn.lane
            AND j.lane <= least(
              part.last, turn.lane + 2 * (turn.lane::bigint - part.lower) / turn.number)::int
            AND j.wait IS NULL
            AND j.fence = 0
          ORDER BY j.lane, j.priority DESC, j.run_at, j.id
          LIMIT 1)
        UNION ALL
        (
          SELECT j.lane, j.ctid
          FROM jobs j
          WHERE j.queue = _find_share_heads.queue
            AND j.class = 0
            AND j.lane > turn.lane
            AND j.lane <= part.last
            AND j.wait IS NULL
            AND j.fence = 0
          ORDER BY j.lane, j.priority DESC, j.run_at, j.id
          LIMIT 1)
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

-- Picks jobs of a class from the lanes of a routed queue that this node may take, up to four of
-- each lane, until it has `max`. Lane 0 is for all nodes. Lane n + 1 has the jobs of token n, and
-- is for the node whose epoch owns the token. Begins with the lane after `after`; after the last
-- lane it goes on with lane 0. Of jobs with limit keys it takes one of each lane: the second is
-- likely to wait for the first. `lanes` has the lane of each picked job; `has_more` says that one
-- of these lanes may have more jobs.
--
-- It skips to the next lane that has a job of any node, looks into some lanes that the node owns
-- from there on, and skips again. A skip costs as much as several looks, because it reads the rest
-- of a page of the index. So it looks into more lanes at a time if the last skip has passed few.
CREATE OR REPLACE FUNCTION _pick_own_lanes(
  queue text,
  class smallint,
  token_group text,
  epoch bigint,
  after int,
  max int,
  without text[],
  OUT tids tid[],
  OUT limited boolean[],
  OUT lanes int[],
  OUT has_more boolean
)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
  part record;
  reached int;
  occupied int;
  looks int := 16;
  own_lanes int[];
  each int := 4;
  more record;
BEGIN
  tids := '{}';
  limited := '{}';
  lanes := '{}';
  FOR part IN
    SELECT _pick_own_lanes.after AS lower, 2147483647 AS last
    UNION ALL
    SELECT -1, _pick_own_lanes.after
  LOOP
    reached := part.lower;
    WHILE cardinality(tids) < _pick_own_lanes.max LOOP
      occupied := (
        SELECT j.lane
        FROM jobs j
        WHERE j.queue = _pick_own_lanes.queue
          AND j.class = _pick_own_lanes.class
          AND j.lane > reached
          AND j.wait IS NULL
          AND j.fence = 0
        ORDER BY j.lane
        LIMIT 1);
      EXIT WHEN occupied IS NULL OR occupied > part.last;
      looks := CASE
          WHEN occupied - reached > looks THEN greatest(looks / 2, 8)
          ELSE least(looks * 2, 1024)
        END;
      own_lanes := CASE WHEN occupied = 0 THEN ARRAY[0] ELSE '{}' END || ARRAY(
        SELECT k.token + 1
        FROM tokens k
        WHERE k.token_group = _pick_own_lanes.token_group
          AND k.epoch = _pick_own_lanes.epoch
          AND k.token >= occupied - 1
          AND k.token < part.last
          AND k.next IS NULL
        ORDER BY k.token
        LIMIT looks);
      EXIT WHEN cardinality(own_lanes) = 0;
      reached := own_lanes[cardinality(own_lanes)];
      -- One scan finds out that none has a job faster than a look into each.
      CONTINUE WHEN NOT EXISTS (
        SELECT
        FROM jobs j
        WHERE j.queue = _pick_own_lanes.queue
          AND j.class = _pick_own_lanes.class
          AND j.lane = ANY (own_lanes)
          AND j.wait IS NULL
          AND j.fence = 0);
      SELECT
        coalesce(array_agg(y.ctid), '{}') AS tids,
        coalesce(array_agg(y.is_limited), '{}') AS limited,
        coalesce(array_agg(y.lane), '{}') AS lanes
      INTO more
      FROM (
        SELECT x.*, l.lane
        FROM unnest(own_lanes) l(lane)
        CROSS JOIN LATERAL (
          SELECT j.ctid, j.limit_keys IS NOT NULL AS is_limited
          FROM jobs j
          WHERE j.queue = _pick_own_lanes.queue
            AND j.class = _pick_own_lanes.class
            AND j.lane = l.lane
            AND j.wait IS NULL
            AND j.fence = 0
            AND (_pick_own_lanes.without IS NULL OR j.type <> ALL (_pick_own_lanes.without))
          ORDER BY j.priority DESC, j.run_at, j.id
          LIMIT each
          FOR UPDATE SKIP LOCKED) x
        LIMIT _pick_own_lanes.max - cardinality(tids)) y;
      IF each > 1 AND true = ANY (more.limited) THEN
        each := 1;
        reached := own_lanes[1] - 1;
        CONTINUE;
      END IF;
      tids := tids || more.tids;
      limited := limited || more.limited;
      lanes := lanes || more.lanes;
    END LOOP;
  END LOOP;
  has_more := EXISTS (
    SELECT FROM unnest(lanes) l(lane) GROUP BY l.lane HAVING count(*) >= each);
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

-- Picks jobs of a routed queue, and of `label_lanes`. To read four jobs of a lane costs less than
-- to read one of each of four lanes, so it takes up to four of each. If too few lanes have jobs for
-- that, or if there are rare kinds of jobs, the lanes take turns until it has `max` jobs. With
-- limit keys a quarter of `max` suffices, because the second job of a lane is likely to wait.
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
AS $$
#variable_conflict use_column
DECLARE
  has_once boolean := EXISTS (
    SELECT
    FROM jobs j
    WHERE j.queue = _pick_routed.queue
      AND j.class = 1
      AND j.wait IS NULL
      AND j.fence = 0);
  lanes int[];
  has_more boolean;
  once_lanes int[] := '{}';
BEGIN
  SELECT p.* INTO tids, limited, lanes, has_more
  FROM _pick_own_lanes(
    _pick_routed.queue, 0::smallint, _pick_routed.token_group, _pick_routed.epoch,
    _pick_routed.after, _pick_routed.max, _pick_routed.without) p;
  turns := array_fill(0, ARRAY[cardinality(tids)]);
  cursor := lanes[cardinality(lanes)];
  IF NOT has_once
    AND cardinality(label_lanes) = 0
    AND (
      NOT has_more
      OR cardinality(tids) >= _pick_routed.max / CASE WHEN true = ANY (limited) THEN 4 ELSE 1 END)
    THEN
    RETURN;
  END IF;
  IF has_once THEN
    SELECT p.lanes INTO once_lanes
    FROM _pick_own_lanes(
      _pick_routed.queue, 1::smallint, _pick_routed.token_group, _pick_routed.epoch,
      _pick_routed.after, _pick_routed.max, _pick_routed.without) p;
  END IF;
  lanes := ARRAY(
      SELECT l.lane
      FROM unnest(lanes || once_lanes) l(lane)
      GROUP BY l.lane
      ORDER BY l.lane <= _pick_routed.after, l.lane) || label_lanes;
  IF cardinality(lanes) = 0 THEN RETURN; END IF;
  -- Our own locks do not stop us: this picks those jobs again, and others with them.
  SELECT p.* INTO tids, turns, limited, cursor
  FROM _pick_turns(
    _pick_routed.queue, lanes, _pick_routed.max, _pick_routed.free, _pick_routed.without) p;
END $$;

-- How claim() picks jobs of fair and routed queues. These functions need its settings.

-- Whether a queue has ready jobs of class 1, which are not claimed ahead. Few queues have.
CREATE OR REPLACE FUNCTION _has_class_1(queue text)
RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
BEGIN
  RETURN EXISTS (
    SELECT
    FROM jobs j
    WHERE j.queue = queue
      AND j.class = 1
      AND j.wait IS NULL
      AND j.fence = 0);
END $$;

-- The lanes above `lower` up to `last` that have ready jobs of a class, at most `max`, with the
-- first job of each. Reads one index entry per lane. A scan without a near end reads the rest of
-- its page of the index, so it first looks for the next lane within twice the mean distance of
-- those that were found.
CREATE OR REPLACE FUNCTION _find_heads(
  queue text,
  class int,
  lower int,
  last int,
  max int,
  OUT lanes int[],
  OUT heads tid[]
)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
BEGIN
  WITH RECURSIVE turn AS (
    (
      SELECT j.lane, j.ctid, 1 AS number
      FROM jobs j
      WHERE j.queue = queue
        AND j.class = class
        AND j.lane > lower
        AND j.lane <= last
        AND j.wait IS NULL
        AND j.fence = 0
      ORDER BY j.lane, j.priority DESC, j.run_at, j.id
      LIMIT 1)
    UNION ALL
    SELECT n.lane, n.ctid, turn.number + 1
    FROM turn
    CROSS JOIN LATERAL (
      (
        SELECT j.lane, j.ctid
        FROM jobs j
        WHERE j.queue = queue
          AND j.class = class
          AND j.lane > turn.lane
          AND j.lane <= least(
            last, turn.lane + 2 * (turn.lane::bigint - lower) / turn.number)::int
          AND j.wait IS NULL
          AND j.fence = 0
        ORDER BY j.lane, j.priority DESC, j.run_at, j.id
        LIMIT 1)
      UNION ALL
      (
        SELECT j.lane, j.ctid
        FROM jobs j
        WHERE j.queue = queue
          AND j.class = class
          AND j.lane > turn.lane
          AND j.lane <= last
          AND j.wait IS NULL
          AND j.fence = 0
        ORDER BY j.lane, j.priority DESC, j.run_at, j.id
        LIMIT 1)
      LIMIT 1) n)
  SELECT coalesce(array_agg(x.lane), '{}'), coalesce(array_agg(x.ctid), '{}') INTO lanes, heads
  FROM (SELECT * FROM turn LIMIT max) x;
END $$;

-- The lanes of a fair queue that have ready jobs of a class, from the one after `after` on, then
-- round; at most `max`, with the first job of each. Lane 0 has the jobs without a share: their
-- enqueue began before the queue became fair, or they were finished then and are run again.
CREATE OR REPLACE FUNCTION _find_share_heads(
  queue text,
  class int,
  after int,
  max int,
  OUT lanes int[],
  OUT heads tid[]
)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  more record;
BEGIN
  SELECT * INTO lanes, heads FROM _find_heads(queue, class, after, 2147483647, max);
  IF cardinality(lanes) < max THEN
    SELECT * INTO more FROM _find_heads(queue, class, -1, after, max - cardinality(lanes));
    lanes := lanes || more.lanes;
    heads := heads || more.heads;
  END IF;
END $$;

-- Different lanes in the order of their turns: first those after `after`.
CREATE OR REPLACE FUNCTION _sort_lanes(lanes int[], after int)
RETURNS int[]
LANGUAGE sql IMMUTABLE AS $$
  SELECT ARRAY(
    SELECT l.lane FROM unnest(lanes) l(lane) GROUP BY l.lane ORDER BY l.lane <= after, l.lane)
$$;

-- Picks jobs of a fair queue, and of `label_lanes`. If as many shares have jobs as jobs are wanted,
-- it takes the first job of each, which the search for lanes has found. If too few have, or if
-- there are rare kinds of jobs, the lanes take turns.
CREATE OR REPLACE FUNCTION _pick_fair(
  queue text,
  after int,
  label_lanes int[],
  max int,
  free int,
  without text[],
  OUT jobs picked_job[],
  OUT cursor int
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  has_class_1 boolean := _has_class_1(queue);
  lanes int[];
  heads tid[];
  picked_lanes int[];
  more record;
BEGIN
  SELECT * INTO lanes, heads FROM _find_share_heads(queue, 0, after, max);
  IF has_class_1
    OR cardinality(lanes) < max
    OR cardinality(label_lanes) > 0
    OR without IS NOT NULL
    OR EXISTS (SELECT FROM shares s WHERE s.queue = queue) THEN
    IF has_class_1 THEN
      lanes := _sort_lanes(
        lanes || (SELECT h.lanes FROM _find_share_heads(queue, 1, after, max) h), after);
    END IF;
    SELECT * INTO jobs, cursor
    FROM _pick_turns(queue, label_lanes || lanes[:max], max, free, without);
    RETURN;
  END IF;
  SELECT * INTO jobs, picked_lanes FROM _pick_heads(queue, after, heads);
  -- Other claims may have taken some of them since they were listed.
  IF cardinality(jobs) < max THEN
    SELECT * INTO more
    FROM _pick_turns(
      queue, ARRAY(SELECT unnest(lanes) EXCEPT SELECT unnest(picked_lanes)),
      max - cardinality(jobs), free, NULL);
    -- All are taken as the first turn, because almost every lane gives one job.
    jobs := jobs || ARRAY(
      SELECT ROW(p.tid, 0, p.is_limited)::picked_job FROM unnest(more.jobs) p);
  END IF;
  cursor := lanes[max];
END $$;

-- Locks those of the jobs of class 0 that are still ready, in the order of their lanes' turns: if
-- they share a limit, its places are given in this order.
CREATE OR REPLACE FUNCTION _pick_heads(
  queue text,
  after int,
  heads tid[],
  OUT jobs picked_job[],
  OUT lanes int[]
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  SELECT
    coalesce(array_agg(ROW(x.ctid, 0, x.is_limited)::picked_job), '{}'),
    coalesce(array_agg(x.lane), '{}')
  INTO jobs, lanes
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
    WHERE y.queue = queue
      AND y.class = 0
      AND y.wait IS NULL
      AND y.fence = 0
    ORDER BY y.lane <= after, y.lane) x;
END $$;

-- Picks jobs of these lanes of a queue in turns: `weight` jobs of each lane, then the next ones of
-- each. `turn` says in which round a job was picked, and `cursor` is the lane of the last one.
-- Jobs of class 1 are picked only into free slots.
CREATE OR REPLACE FUNCTION _pick_turns(
  queue text,
  lanes int[],
  max int,
  free int,
  without text[],
  OUT jobs picked_job[],
  OUT cursor int
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  classes smallint[] := CASE WHEN free > 0 AND _has_class_1(queue) THEN '{0,1}' ELSE '{0}' END;
  weights int[] := _read_weights(queue, lanes);
  rounds int := greatest(1, ceil(max::numeric / (SELECT sum(w) FROM unnest(weights) w))::int);
BEGIN
  WITH picked AS MATERIALIZED (
      SELECT x.*, l.n, l.lane, l.weight
      FROM unnest(lanes, weights) WITH ORDINALITY l(lane, weight, n)
      CROSS JOIN LATERAL (
        SELECT c.class, y.*
        FROM unnest(classes) c(class)
        CROSS JOIN LATERAL (
          SELECT j.ctid, j.priority, j.run_at, j.id, j.limit_keys IS NOT NULL AS is_limited
          FROM jobs j
          WHERE j.queue = queue
            AND j.class = c.class
            AND j.lane = l.lane
            AND j.wait IS NULL
            AND j.fence = 0
            AND (without IS NULL OR j.type <> ALL (without))
          ORDER BY j.priority DESC, j.run_at, j.id
          LIMIT CASE c.class WHEN 0 THEN l.weight * rounds ELSE least(l.weight * rounds, free) END
          FOR UPDATE SKIP LOCKED) y
        -- Keeps the classes of a lane together: the next line takes the first lanes.
        OFFSET 0) x
      LIMIT CASE WHEN rounds = 1 THEN max END),
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
    coalesce(
      array_agg(ROW(p.ctid, p.turn, p.is_limited)::picked_job ORDER BY p.place), '{}'),
    (array_agg(p.lane ORDER BY p.place DESC))[1]
  INTO jobs, cursor
  FROM placed p
  WHERE p.place <= max
    AND (p.class = 0 OR p.place <= free);
END $$;

-- The weights of these lanes of a queue, in their order. Few queues have weights other than 1.
CREATE OR REPLACE FUNCTION _read_weights(queue text, lanes int[])
RETURNS int[]
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
BEGIN
  IF NOT EXISTS (SELECT FROM shares s WHERE s.queue = queue) THEN
    RETURN array_fill(1, ARRAY[cardinality(lanes)]);
  END IF;
  RETURN ARRAY(
    SELECT coalesce(s.weight, 1)
    FROM unnest(lanes) WITH ORDINALITY l(lane, n)
    LEFT JOIN shares s ON s.queue = queue AND s.lane = l.lane
    ORDER BY l.n);
END $$;

-- Picks jobs of a routed queue, and of `label_lanes`. To read four jobs of a lane costs less than
-- to read one of each of four lanes, so it takes up to four of each. If too few lanes have jobs for
-- that, or if there are rare kinds of jobs, the lanes take turns until it has `max` jobs. With
-- limit keys a quarter of `max` suffices, because the second job of a lane is likely to wait.
CREATE OR REPLACE FUNCTION _pick_routed(
  rule queues,
  epoch bigint,
  after int,
  label_lanes int[],
  max int,
  free int,
  without text[],
  OUT jobs picked_job[],
  OUT cursor int
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  has_class_1 boolean := _has_class_1(rule.name);
  is_limited boolean;
  lanes int[];
  has_more boolean;
BEGIN
  SELECT * INTO jobs, is_limited, lanes, has_more
  FROM _pick_own_lanes(rule.name, 0, rule.token_group, epoch, after, max, without);
  IF NOT has_class_1
    AND cardinality(label_lanes) = 0
    AND (
      NOT has_more
      OR cardinality(jobs) >= max / CASE WHEN is_limited THEN 4 ELSE 1 END) THEN
    cursor := lanes[cardinality(lanes)];
    RETURN;
  END IF;
  IF has_class_1 THEN
    lanes := lanes || (
      SELECT p.lanes
      FROM _pick_own_lanes(rule.name, 1, rule.token_group, epoch, after, max, without) p);
  END IF;
  -- Our own locks do not stop us: this picks those jobs again, and others with them.
  SELECT * INTO jobs, cursor
  FROM _pick_turns(rule.name, _sort_lanes(lanes, after) || label_lanes, max, free, without);
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
  class int,
  token_group text,
  epoch bigint,
  after int,
  max int,
  without text[],
  OUT jobs picked_job[],
  OUT is_limited boolean,
  OUT lanes int[],
  OUT has_more boolean
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  reached int;
  last int;
  occupied int;
  looks int := 16;
  own_lanes int[];
  each int := 4;
  more record;
BEGIN
  jobs := '{}';
  is_limited := false;
  lanes := '{}';
  FOR reached, last IN VALUES (after, 2147483647), (-1, after) LOOP
    WHILE cardinality(jobs) < max LOOP
      occupied := (_find_heads(queue, class, reached, last, 1)).lanes[1];
      EXIT WHEN occupied IS NULL;
      looks := CASE
          WHEN occupied - reached > looks THEN greatest(looks / 2, 8)
          ELSE least(looks * 2, 1024)
        END;
      own_lanes := _find_own_lanes(token_group, epoch, occupied, last, looks);
      EXIT WHEN cardinality(own_lanes) = 0;
      SELECT * INTO more
      FROM _pick_from_lanes(
        queue, class, own_lanes, each, max - cardinality(jobs), without);
      IF each > 1 AND more.is_limited THEN
        each := 1;
        CONTINUE;
      END IF;
      jobs := jobs || more.jobs;
      is_limited := is_limited OR coalesce(more.is_limited, false);
      lanes := lanes || more.lanes;
      reached := own_lanes[cardinality(own_lanes)];
    END LOOP;
  END LOOP;
  has_more := EXISTS (
    SELECT FROM unnest(lanes) l(lane) GROUP BY l.lane HAVING count(*) >= each);
END $$;

-- The lanes from `first` to `last` whose tokens a node owns, at most `max` and lane 0 first.
CREATE OR REPLACE FUNCTION _find_own_lanes(
  token_group text,
  epoch bigint,
  first int,
  last int,
  max int
)
RETURNS int[]
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
BEGIN
  RETURN CASE WHEN first = 0 THEN ARRAY[0] ELSE '{}' END || ARRAY(
    SELECT k.token + 1
    FROM tokens k
    WHERE k.token_group = token_group
      AND k.epoch = epoch
      AND k.token >= first - 1
      AND k.token < last
      AND k.next IS NULL
    ORDER BY k.token
    LIMIT max);
END $$;

-- Picks up to `each` jobs of a class from each of these lanes, until it has `max`.
CREATE OR REPLACE FUNCTION _pick_from_lanes(
  queue text,
  class int,
  own_lanes int[],
  each int,
  max int,
  without text[],
  OUT jobs picked_job[],
  OUT is_limited boolean,
  OUT lanes int[]
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  -- One scan finds out that none has a job faster than a look into each.
  IF NOT EXISTS (
    SELECT
    FROM jobs j
    WHERE j.queue = queue
      AND j.class = class
      AND j.lane = ANY (own_lanes)
      AND j.wait IS NULL
      AND j.fence = 0) THEN
    RETURN;
  END IF;
  SELECT
    array_agg(ROW(y.ctid, 0, y.is_limited)::picked_job), bool_or(y.is_limited), array_agg(y.lane)
  INTO jobs, is_limited, lanes
  FROM (
    SELECT x.*, l.lane
    FROM unnest(own_lanes) l(lane)
    CROSS JOIN LATERAL (
      SELECT j.ctid, j.limit_keys IS NOT NULL AS is_limited
      FROM jobs j
      WHERE j.queue = queue
        AND j.class = class
        AND j.lane = l.lane
        AND j.wait IS NULL
        AND j.fence = 0
        AND (without IS NULL OR j.type <> ALL (without))
      ORDER BY j.priority DESC, j.run_at, j.id
      LIMIT each
      FOR UPDATE SKIP LOCKED) x
    LIMIT max) y;
END $$;

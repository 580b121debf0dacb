-- How claim() picks jobs if there are jobs of class 1, lanes or queues with rules. These functions
-- need its settings, and lock what they return without waiting for locks.

-- The lanes that a node with these labels takes from: 0, and those of sets that it has all of.
CREATE OR REPLACE FUNCTION _find_label_lanes(labels jsonb)
RETURNS int[]
LANGUAGE sql STABLE
AS $$
  SELECT 0 || ARRAY(
    SELECT s.lane FROM label_sets s WHERE s.labels <@ _find_label_lanes.labels ORDER BY s.lane)
$$;

-- Picks jobs queue by queue, because each queue may have another rule. A queue with a limit gives
-- no more jobs than it has places; if another transaction has locked its state, it gives none, and
-- `is_busy` says so.
CREATE OR REPLACE FUNCTION _pick_by_queue(
  epoch bigint,
  queues text[],
  declared_queues text[],
  node_lanes int[],
  max int,
  free int,
  without text[],
  floor_queues text[],
  floor_priorities smallint[],
  floor_times timestamptz[],
  floor_ids uuid[],
  t timestamptz,
  OUT tids tid[],
  OUT turns int[],
  OUT limited boolean[],
  OUT limited_queues text[],
  OUT is_busy boolean
)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
  queue_name text;
  declared queues;
  -- How many more jobs to take, and how many of these can start at once.
  wanted int := _pick_by_queue.max;
  slots int := least(_pick_by_queue.free, _pick_by_queue.max);
  lanes int[];
  cursor_epoch bigint;
  cursor int;
  more record;
BEGIN
  tids := '{}';
  turns := '{}';
  limited := '{}';
  limited_queues := '{}';
  is_busy := false;
  IF cardinality(declared_queues) > 0 THEN PERFORM _make_states_of_queues(declared_queues); END IF;
  FOREACH queue_name IN ARRAY _pick_by_queue.queues LOOP
    EXIT WHEN wanted <= 0;
    declared := NULL;
    IF queue_name = ANY (declared_queues) THEN
      SELECT * INTO declared FROM queues q WHERE q.name = queue_name;
    END IF;
    IF declared.max IS NOT NULL THEN
      limited_queues := limited_queues || queue_name;
      declared.max := _count_queue_places(queue_name, declared.max);
      is_busy := is_busy OR declared.max IS NULL;
      CONTINUE WHEN declared.max IS NULL OR declared.max <= 0;
    END IF;
    IF declared.lanes IN ('share', 'route') THEN
      cursor_epoch := CASE declared.lanes WHEN 'share' THEN 0 ELSE _pick_by_queue.epoch END;
      cursor := _read_lane_cursor(queue_name, cursor_epoch);
      -- Also the lanes of the node's labels: a job in them has no share and no token.
      lanes := array_remove(node_lanes, 0);
      IF declared.lanes = 'share' THEN
        SELECT p.*, false AS has_left_one INTO more
        FROM _pick_fair(
          queue_name, cursor, lanes, least(wanted, declared.max), least(slots, declared.max),
          without) p;
      ELSE
        SELECT p.*, false AS has_left_one INTO more
        FROM _pick_routed(
          declared, _pick_by_queue.epoch, cursor, lanes, least(wanted, declared.max),
          least(slots, declared.max), without) p;
      END IF;
      IF more.cursor >= 0 AND more.cursor <> cursor THEN
        PERFORM _write_lane_cursor(queue_name, cursor_epoch, more.cursor);
      END IF;
    ELSE
      SELECT
        p.tids, array_fill(0, ARRAY[cardinality(p.tids)]) AS turns, p.limited, p.has_left_one
      INTO more
      FROM _pick_merged(
        queue_name, node_lanes, least(wanted, declared.max), least(slots, declared.max), without,
        floor_queues, floor_priorities, floor_times, floor_ids, t) p;
    END IF;
    tids := tids || more.tids;
    turns := turns || more.turns;
    limited := limited || more.limited;
    wanted := wanted - cardinality(more.tids);
    slots := greatest(0, slots - cardinality(more.tids));
    -- Jobs of later queues must not be claimed ahead of one that stays.
    IF more.has_left_one THEN wanted := least(wanted, slots); END IF;
  END LOOP;
END $$;

-- Makes the limit states of those of the queues that have a limit. Makes all at once: claims name
-- queues in different orders, and two that make the same states must not wait for each other.
CREATE OR REPLACE FUNCTION _make_states_of_queues(declared_queues text[])
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
BEGIN
  PERFORM _make_limit_states(ARRAY(
    SELECT 'queue:' || q.name
    FROM queues q
    WHERE q.name = ANY (declared_queues)
      AND q.max IS NOT NULL));
END $$;

-- How many more jobs of a queue with a limit may run; NULL if another transaction has locked its
-- state. Locks the state.
CREATE OR REPLACE FUNCTION _count_queue_places(queue text, max int)
RETURNS int
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
  queue_key text := 'queue:' || _count_queue_places.queue;
BEGIN
  PERFORM FROM limit_states s WHERE s.key = queue_key FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN NULL; END IF;
  RETURN _count_queue_places.max - (SELECT count(*) FROM holds h WHERE h.key = queue_key);
END $$;

-- Finds those of the queues that have a place, or no limit; and those that have a limit. Locks the
-- states of the limits; `is_busy`: another transaction has locked one.
CREATE OR REPLACE FUNCTION _find_queues_with_places(
  queues text[],
  declared_queues text[],
  OUT queues_with_places text[],
  OUT limited_queues text[],
  OUT is_busy boolean
)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
BEGIN
  queues_with_places := _find_queues_with_places.queues;
  limited_queues := '{}';
  is_busy := false;
  IF cardinality(declared_queues) = 0 THEN RETURN; END IF;
  PERFORM _make_states_of_queues(declared_queues);
  SELECT
    coalesce(array_agg(x.queue ORDER BY x.n) FILTER (WHERE x.max IS NULL OR x.places > 0), '{}'),
    coalesce(array_agg(x.queue) FILTER (WHERE x.max IS NOT NULL), '{}'),
    coalesce(bool_or(x.max IS NOT NULL AND x.places IS NULL), false)
  INTO queues_with_places, limited_queues, is_busy
  FROM (
    SELECT
      g.queue,
      g.n,
      q.max,
      CASE WHEN q.max IS NOT NULL THEN _count_queue_places(q.name, q.max) END AS places
    FROM unnest(_find_queues_with_places.queues) WITH ORDINALITY g(queue, n)
    LEFT JOIN queues q ON q.name = g.queue) x;
END $$;

-- Returns the positions of the picked jobs, without those that come after the last place of their
-- queue. The caller has locked the states of the limits.
CREATE OR REPLACE FUNCTION _find_queue_places(tids tid[], limited_queues text[])
RETURNS int[]
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
BEGIN
  IF cardinality(limited_queues) = 0 THEN RETURN ARRAY(SELECT generate_subscripts(tids, 1)); END IF;
  RETURN ARRAY(
    SELECT x.n::int
    FROM (
      SELECT p.n, j.queue, row_number() OVER (PARTITION BY j.queue ORDER BY p.n) AS rank
      FROM unnest(tids) WITH ORDINALITY p(tid, n)
      JOIN jobs j ON j.ctid = p.tid) x
    LEFT JOIN queues q ON q.name = x.queue
    WHERE q.max IS NULL
      OR x.rank <= q.max - (SELECT count(*) FROM holds h WHERE h.key = 'queue:' || x.queue)
    ORDER BY x.n);
END $$;

-- Lists the first ready jobs of a class and a lane, with what decides about their order in the
-- queue: the jobs that _pick() would pick. Locks nothing.
CREATE OR REPLACE FUNCTION _list_first_jobs(
  queue text,
  class smallint,
  lane int,
  max int,
  without text[],
  floor_queues text[],
  floor_priorities smallint[],
  floor_times timestamptz[],
  floor_ids uuid[],
  t timestamptz
)
RETURNS TABLE (tid tid, priority smallint, run_at timestamptz, id uuid)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
BEGIN
  IF floor_queues IS NULL OR _list_first_jobs.class <> 0 OR _list_first_jobs.lane <> 0 THEN
    RETURN QUERY
      SELECT j.ctid, j.priority, j.run_at, j.id
      FROM jobs j
      WHERE j.queue = _list_first_jobs.queue
        AND j.class = _list_first_jobs.class
        AND j.lane = _list_first_jobs.lane
        AND j.wait IS NULL
        AND j.fence = 0
        AND (_list_first_jobs.without IS NULL OR j.type <> ALL (_list_first_jobs.without))
      ORDER BY j.priority DESC, j.run_at, j.id
      LIMIT _list_first_jobs.max;
  ELSE
    RETURN QUERY
      SELECT y.*
      FROM _scan_ranges(
        ARRAY[_list_first_jobs.queue], floor_queues, floor_priorities, floor_times, floor_ids,
        t - interval '250 milliseconds') s
      CROSS JOIN LATERAL (
        (
          SELECT j.ctid, j.priority, j.run_at, j.id
          FROM jobs j
          WHERE s.floor IS NOT NULL
            AND j.queue = s.queue
            AND j.class = 0
            AND j.lane = 0
            AND j.priority = s.floor
            AND (j.run_at, j.id) > (s.at, s.id)
            AND j.wait IS NULL
            AND j.fence = 0
          ORDER BY j.run_at, j.id
          LIMIT _list_first_jobs.max)
        UNION ALL
        (
          SELECT j.ctid, j.priority, j.run_at, j.id
          FROM jobs j
          WHERE s.floor IS NULL
            AND j.queue = s.queue
            AND j.class = 0
            AND j.lane = 0
            AND j.priority < s.below
            AND j.priority > s.above
            AND j.wait IS NULL
            AND j.fence = 0
          ORDER BY j.priority DESC, j.run_at, j.id
          LIMIT _list_first_jobs.max)) y
      LIMIT _list_first_jobs.max;
  END IF;
END $$;

-- Picks jobs of one queue from several lanes, and of both classes, in one order. Jobs of class 1
-- are not claimed ahead: such a job is picked only if it is among the first `free` jobs. Jobs that
-- come after one that stays are picked only into free slots; `has_left_one` says that one stays.
-- Lists the first jobs of all lanes, without locks, to find out how many to pick from each.
CREATE OR REPLACE FUNCTION _pick_merged(
  queue text,
  lanes int[],
  max int,
  free int,
  without text[],
  floor_queues text[],
  floor_priorities smallint[],
  floor_times timestamptz[],
  floor_ids uuid[],
  t timestamptz,
  OUT tids tid[],
  OUT limited boolean[],
  OUT has_left_one boolean
)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
  first int := least(free, _pick_merged.max);
  from_lane int;
  number int;
  more record;
  boundary record;
BEGIN
  tids := '{}';
  limited := '{}';
  has_left_one := false;
  FOR from_lane, number IN
    SELECT y.lane, count(*)
    FROM (
      SELECT x.lane, x.class
      FROM (
        SELECT l.lane, c.class, h.*
        FROM unnest(lanes) l(lane)
        CROSS JOIN (VALUES (0::smallint), (1::smallint)) c(class)
        CROSS JOIN LATERAL _list_first_jobs(
          _pick_merged.queue, c.class, l.lane, first, _pick_merged.without, floor_queues,
          floor_priorities, floor_times, floor_ids, t) h) x
      ORDER BY x.priority DESC, x.run_at, x.id
      LIMIT first) y
    WHERE y.class = 1
    GROUP BY y.lane
  LOOP
    SELECT * INTO more
    FROM _pick(
      ARRAY[_pick_merged.queue], 1::smallint, from_lane, number, _pick_merged.without, NULL, NULL,
      NULL, NULL, t);
    tids := tids || more.tids;
    limited := limited || more.limited;
  END LOOP;
  SELECT h.* INTO boundary
  FROM unnest(lanes) l(lane)
  CROSS JOIN LATERAL _list_first_jobs(
    _pick_merged.queue, 1::smallint, l.lane, cardinality(tids) + 1, _pick_merged.without, NULL,
    NULL, NULL, NULL, t) h
  WHERE h.tid <> ALL (tids)
  ORDER BY h.priority DESC, h.run_at, h.id
  LIMIT 1;
  has_left_one := FOUND;
  FOR from_lane, number IN
    SELECT y.lane, count(*)
    FROM (
      SELECT
        x.lane,
        row_number() OVER (ORDER BY x.priority DESC, x.run_at, x.id) <= first - cardinality(tids)
          OR NOT has_left_one
          OR (-x.priority, x.run_at, x.id) < (-boundary.priority, boundary.run_at, boundary.id)
          AS may_start
      FROM (
        SELECT l.lane, h.*
        FROM unnest(lanes) l(lane)
        CROSS JOIN LATERAL _list_first_jobs(
          _pick_merged.queue, 0::smallint, l.lane, _pick_merged.max - cardinality(tids),
          _pick_merged.without, floor_queues, floor_priorities, floor_times, floor_ids, t) h) x
      ORDER BY x.priority DESC, x.run_at, x.id
      LIMIT _pick_merged.max - cardinality(tids)) y
    WHERE y.may_start
    GROUP BY y.lane
  LOOP
    SELECT * INTO more
    FROM _pick(
      ARRAY[_pick_merged.queue], 0::smallint, from_lane, number, _pick_merged.without,
      CASE WHEN from_lane = 0 AND without IS NULL THEN floor_queues END,
      floor_priorities, floor_times, floor_ids, t);
    tids := tids || more.tids;
    limited := limited || more.limited;
  END LOOP;
END $$;

-- Picks one job in quarantine, of a lane that this node may take.
CREATE OR REPLACE FUNCTION _pick_quarantined(
  epoch bigint,
  queues text[],
  label_lanes int[],
  OUT tids tid[],
  OUT limited boolean[]
)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
BEGIN
  SELECT coalesce(array_agg(x.ctid), '{}'), coalesce(array_agg(x.is_limited), '{}')
  INTO tids, limited
  FROM (
    SELECT y.*
    FROM unnest(_pick_quarantined.queues) q(queue)
    CROSS JOIN LATERAL (
      SELECT j.ctid, j.limit_keys IS NOT NULL AS is_limited
      FROM jobs j
      WHERE j.queue = q.queue
        AND j.class = 2
        AND j.wait IS NULL
        AND j.fence = 0
        AND (
          j.lane = ANY (label_lanes)
          OR j.lane > 0 AND _owns_lane(_pick_quarantined.epoch, q.queue, j.lane))
      ORDER BY j.lane, j.priority DESC, j.run_at, j.id
      LIMIT 1
      FOR UPDATE SKIP LOCKED) y
    LIMIT 1) x;
END $$;

-- Whether a node may take the jobs of a lane above 0: every node may, if the lane is a share.
CREATE OR REPLACE FUNCTION _owns_lane(epoch bigint, queue text, lane int)
RETURNS boolean
LANGUAGE sql STABLE
AS $$
  SELECT NOT EXISTS (
      SELECT FROM queues q WHERE q.name = _owns_lane.queue AND q.lanes = 'route')
    OR EXISTS (
      SELECT
      FROM queues q
      JOIN tokens k
        ON k.token_group = q.token_group AND k.token = _owns_lane.lane - 1
          AND k.epoch = _owns_lane.epoch AND k.next IS NULL
      WHERE q.name = _owns_lane.queue)
$$;

-- Picks jobs of types or versions that another node does not know, and this node does. Jobs of
-- class 1 only with `into_slots`: all that it picks can start at once. With `acting` only jobs of
-- this tenant. Lists the first jobs of all these types, without locks, to find out how many to pick
-- from each.
CREATE OR REPLACE FUNCTION _pick_jobs_others_do_not_support(
  epoch bigint,
  queues text[],
  label_lanes int[],
  max int,
  is_quarantine boolean,
  without text[],
  into_slots boolean,
  acting text,
  OUT tids tid[],
  OUT limited boolean[]
)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
BEGIN
  WITH first_jobs AS (
      SELECT y.wait_key
      FROM unnest(_pick_jobs_others_do_not_support.queues) WITH ORDINALITY q(queue, n)
      CROSS JOIN unsupported_types u
      JOIN node_types n
        ON n.epoch = _pick_jobs_others_do_not_support.epoch AND n.type = u.type
          AND n.version >= u.version
      CROSS JOIN LATERAL (
        SELECT j.wait_key, j.lane, j.priority, j.run_at, j.id
        FROM jobs j
        WHERE j.wait = 'unsupported'
          AND j.wait_key = _unsupported_key(q.queue, u.type, u.version)
          AND (j.class = 2) = is_quarantine
          AND j.fence = 0
          AND (j.class <> 1 OR into_slots)
          AND (acting IS NULL OR j.tenant = acting)
          AND (j.lane = ANY (label_lanes) OR j.lane > 0 AND _owns_lane(n.epoch, j.queue, j.lane))
        ORDER BY j.lane, j.priority DESC, j.run_at, j.id
        LIMIT _pick_jobs_others_do_not_support.max) y
      WHERE u.type <> ALL (coalesce(_pick_jobs_others_do_not_support.without, '{}'))
      ORDER BY q.n, y.lane, y.priority DESC, y.run_at, y.id
      LIMIT _pick_jobs_others_do_not_support.max),
    keys AS MATERIALIZED (SELECT f.wait_key, count(*) AS number FROM first_jobs f GROUP BY 1)
  SELECT coalesce(array_agg(x.ctid), '{}'), coalesce(array_agg(x.is_limited), '{}')
  INTO tids, limited
  FROM keys k
  CROSS JOIN LATERAL (
    SELECT j.ctid, j.limit_keys IS NOT NULL AS is_limited
    FROM jobs j
    WHERE j.wait = 'unsupported'
      AND j.wait_key = k.wait_key
      AND (j.class = 2) = _pick_jobs_others_do_not_support.is_quarantine
      AND j.fence = 0
      AND (j.class <> 1 OR into_slots)
      AND (acting IS NULL OR j.tenant = acting)
      AND (
        j.lane = ANY (label_lanes)
        OR j.lane > 0 AND _owns_lane(_pick_jobs_others_do_not_support.epoch, j.queue, j.lane))
    ORDER BY j.lane, j.priority DESC, j.run_at, j.id
    LIMIT k.number
    FOR UPDATE SKIP LOCKED) x;
END $$;

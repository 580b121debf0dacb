-- How claim() picks jobs if there are jobs of class 1, lanes or queues with rules.

-- Picks jobs queue by queue, because each queue may have another rule. A queue with a limit gives
-- no more jobs than it has places; if another transaction has locked its state, it gives none. What
-- is picked is for free slots if there are types to leave out.
CREATE OR REPLACE FUNCTION _pick_by_queue(rules claim_rules, max int, t timestamptz)
RETURNS pick
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  picked pick := ROW('{}', NULL, '{}', false, NULL)::pick;
  queue text;
  declared queues;
  -- How many more jobs can start at once, and how many more to take.
  slots int := least(rules.slots, max);
  wanted int := CASE WHEN rules.without IS NULL THEN max ELSE rules.slots END;
  more picked_job[];
  has_left_one boolean;
BEGIN
  IF cardinality(rules.declared_queues) > 0 THEN
    PERFORM _make_states_of_queues(rules.declared_queues);
  END IF;
  FOREACH queue IN ARRAY rules.queues LOOP
    EXIT WHEN wanted <= 0;
    declared := NULL;
    IF queue = ANY (rules.declared_queues) THEN
      SELECT q.* INTO declared FROM queues q WHERE q.name = queue;
    END IF;
    IF declared.max IS NOT NULL THEN
      picked.limited_queues := picked.limited_queues || queue;
      declared.max := _count_queue_places(queue, declared.max);
      picked.is_busy := picked.is_busy OR declared.max IS NULL;
      CONTINUE WHEN declared.max IS NULL OR declared.max <= 0;
    END IF;
    IF declared.lanes IN ('share', 'route') THEN
      more := _pick_in_turns(
        rules, declared, least(wanted, declared.max), least(slots, declared.max));
      has_left_one := false;
    ELSE
      SELECT p.* INTO more, has_left_one
      FROM _pick_merged(
        rules, queue, least(wanted, declared.max), least(slots, declared.max), t) p;
    END IF;
    picked.jobs := picked.jobs || more;
    wanted := wanted - cardinality(more);
    slots := greatest(0, slots - cardinality(more));
    -- Jobs of later queues must not be claimed ahead of one that stays.
    IF has_left_one THEN wanted := least(wanted, slots); END IF;
  END LOOP;
  RETURN picked;
END $$;

-- Picks jobs of a fair or routed queue, and remembers the lane that was served last.
CREATE OR REPLACE FUNCTION _pick_in_turns(
  rules claim_rules,
  declared queues,
  max int,
  free int
)
RETURNS picked_job[]
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  cursor_epoch bigint := CASE declared.lanes WHEN 'share' THEN 0 ELSE rules.epoch END;
  cursor int := _read_lane_cursor(declared.name, cursor_epoch);
  -- Also the lanes of the node's labels: a job in them has no share and no token.
  lanes int[] := array_remove(rules.lanes, 0);
  more record;
BEGIN
  IF declared.lanes = 'share' THEN
    SELECT p.* INTO more
    FROM _pick_fair(declared.name, cursor, lanes, max, free, rules.without) p;
  ELSE
    SELECT p.* INTO more
    FROM _pick_routed(declared, rules.epoch, cursor, lanes, max, free, rules.without) p;
  END IF;
  IF more.cursor >= 0 AND more.cursor <> cursor THEN
    PERFORM _write_lane_cursor(declared.name, cursor_epoch, more.cursor);
  END IF;
  RETURN more.jobs;
END $$;

-- Picks jobs of one queue from several lanes, and of both classes, in one order. Jobs of class 1
-- are not claimed ahead: such a job is picked only if it is among the first `free` jobs. Jobs that
-- come after one that stays are picked only into free slots; `has_left_one` says that one stays.
-- Lists the first jobs of all lanes, without locks, to find out how many to pick from each.
CREATE OR REPLACE FUNCTION _pick_merged(
  rules claim_rules,
  queue text,
  max int,
  free int,
  t timestamptz,
  OUT jobs picked_job[],
  OUT has_left_one boolean
)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  slots_left int := least(free, max);
  from_lane int;
  number int;
  left_one record; -- the first job of class 1 that stays
BEGIN
  jobs := _pick_once_jobs(rules, queue, slots_left, t);
  max := max - cardinality(jobs);
  slots_left := slots_left - cardinality(jobs);
  -- The list has the picked jobs too, so it must be longer by one.
  SELECT h.* INTO left_one
  FROM unnest(rules.lanes) l(lane)
  CROSS JOIN LATERAL _list_first_jobs(
    queue, 1::smallint, l.lane, cardinality(jobs) + 1, rules.without, NULL, t) h
  WHERE h.tid <> ALL (ARRAY(SELECT p.tid FROM unnest(jobs) p))
  ORDER BY h.priority DESC, h.run_at, h.id
  LIMIT 1;
  has_left_one := FOUND;
  FOR from_lane, number IN
    SELECT y.lane, count(*)
    FROM (
      SELECT
        x.lane,
        row_number() OVER (ORDER BY x.priority DESC, x.run_at, x.id) <= slots_left
          OR NOT has_left_one
          OR (-x.priority, x.run_at, x.id) < (-left_one.priority, left_one.run_at, left_one.id)
          AS may_start
      FROM (
        SELECT l.lane, h.*
        FROM unnest(rules.lanes) l(lane)
        CROSS JOIN LATERAL _list_first_jobs(
          queue, 0::smallint, l.lane, max, rules.without,
          CASE WHEN l.lane = 0 THEN rules.floors END, t) h) x
      ORDER BY x.priority DESC, x.run_at, x.id
      LIMIT max) y
    WHERE y.may_start
    GROUP BY y.lane
  LOOP
    SELECT jobs || _describe_picked(p.tids, p.are_limited)
    INTO jobs
    FROM _pick(
      ARRAY[queue], 0::smallint, from_lane, number, rules.without,
      CASE WHEN from_lane = 0 THEN rules.floors END, t) p;
  END LOOP;
END $$;

-- Picks those jobs of class 1 that are among the first `max` jobs of a queue.
CREATE OR REPLACE FUNCTION _pick_once_jobs(
  rules claim_rules,
  queue text,
  max int,
  t timestamptz
)
RETURNS picked_job[]
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  jobs picked_job[] := '{}';
  from_lane int;
  number int;
BEGIN
  FOR from_lane, number IN
    SELECT y.lane, count(*)
    FROM (
      SELECT x.lane, x.class
      FROM (
        SELECT l.lane, c.class, h.*
        FROM unnest(rules.lanes) l(lane)
        CROSS JOIN (VALUES (0::smallint), (1::smallint)) c(class)
        CROSS JOIN LATERAL _list_first_jobs(
          queue, c.class, l.lane, max, rules.without,
          CASE WHEN c.class = 0 AND l.lane = 0 THEN rules.floors END, t) h) x
      ORDER BY x.priority DESC, x.run_at, x.id
      LIMIT max) y
    WHERE y.class = 1
    GROUP BY y.lane
  LOOP
    SELECT jobs || _describe_picked(p.tids, p.are_limited)
    INTO jobs
    FROM _pick(ARRAY[queue], 1::smallint, from_lane, number, rules.without, NULL, t) p;
  END LOOP;
  RETURN jobs;
END $$;

-- The lanes that a node with this name and these labels takes from: 0, and those of sets that it
-- has all of.
CREATE OR REPLACE FUNCTION _find_label_lanes(node_name text, node_labels jsonb)
RETURNS int[]
LANGUAGE sql STABLE
AS $$
  SELECT 0 || ARRAY(
    SELECT s.lane
    FROM label_sets s
    WHERE _has_labels(node_name, node_labels, s.labels)
    ORDER BY s.lane)
$$;

-- Makes the limit states of those of the queues that have a limit. Makes all at once: claims name
-- queues in different orders, and two that make the same states must not wait for each other.
CREATE OR REPLACE FUNCTION _make_states_of_queues(declared_queues text[])
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  PERFORM _make_limit_states(ARRAY(
    SELECT _queue_key(q.name)
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
#variable_conflict use_variable
DECLARE
  queue_key text := _queue_key(queue);
BEGIN
  PERFORM FROM limit_states s WHERE s.key = queue_key FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN NULL; END IF;
  RETURN max - (SELECT count(*) FROM holds h WHERE h.key = queue_key);
END $$;

-- Finds those of the queues that have a place, or no limit; and those that have a limit. Locks the
-- states of the limits; `is_busy`: another transaction has locked one.
CREATE OR REPLACE FUNCTION _find_queues_with_places(
  queues text[],
  declared_queues text[],
  OUT open_queues text[],
  OUT limited_queues text[],
  OUT is_busy boolean
)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
BEGIN
  open_queues := queues;
  limited_queues := '{}';
  is_busy := false;
  IF cardinality(declared_queues) = 0 THEN RETURN; END IF;
  PERFORM _make_states_of_queues(declared_queues);
  SELECT
    coalesce(array_agg(x.queue ORDER BY x.n) FILTER (WHERE x.max IS NULL OR x.places > 0), '{}'),
    coalesce(array_agg(x.queue) FILTER (WHERE x.max IS NOT NULL), '{}'),
    coalesce(bool_or(x.max IS NOT NULL AND x.places IS NULL), false)
  INTO open_queues, limited_queues, is_busy
  FROM (
    SELECT
      g.queue,
      g.n,
      q.max,
      CASE WHEN q.max IS NOT NULL THEN _count_queue_places(q.name, q.max) END AS places
    FROM unnest(queues) WITH ORDINALITY g(queue, n)
    LEFT JOIN queues q ON q.name = g.queue) x;
END $$;

-- Returns the picked jobs without those that come after the last place of their queue. The caller
-- has locked the states of the limits.
CREATE OR REPLACE FUNCTION _keep_jobs_with_places(jobs picked_job[])
RETURNS picked_job[]
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
BEGIN
  RETURN ARRAY(
    SELECT jobs[x.n]
    FROM (
      SELECT p.n, j.queue, row_number() OVER (PARTITION BY j.queue ORDER BY p.n) AS rank
      FROM unnest(jobs) WITH ORDINALITY p(tid, turn, is_limited, n)
      JOIN jobs j ON j.ctid = p.tid) x
    LEFT JOIN queues q ON q.name = x.queue
    WHERE q.max IS NULL
      OR x.rank <= q.max - (SELECT count(*) FROM holds h WHERE h.key = _queue_key(x.queue))
    ORDER BY x.n);
END $$;

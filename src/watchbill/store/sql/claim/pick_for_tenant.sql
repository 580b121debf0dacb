-- How claim() picks jobs in a session that acts for a tenant: in a queue that several tenants use,
-- the tenant's jobs wait among those of others, and no index finds them. So each round of a claim
-- reads a bounded number of jobs of others, and the next one of the node goes on from there:
-- tenant_scans has the position. A tenant with a queue of its own reads no more than an ordinary
-- claim does. These functions need the settings of claim(), and lock what they return without
-- waiting for locks.

-- Picks up to `max` jobs of the tenant, or one job in quarantine. Takes no more jobs of a queue
-- with a limit than it has places. Reads about 800 jobs of others at most; each queue gets an equal
-- part of them, and what the queues before it have left. With those that one look at all lanes may
-- read beyond that, it is 1,000.
CREATE OR REPLACE FUNCTION _pick_for_tenant(rules claim_rules, max int)
RETURNS pick
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  picked pick;
  open_queues text[];
  classes smallint[] := CASE WHEN rules.alone THEN '{2}' ELSE '{0,1}' END;
  number int := CASE WHEN rules.alone THEN 1 ELSE max END;
  others_left int := 800;
  more record;
BEGIN
  picked.jobs := '{}';
  SELECT * INTO open_queues, picked.limited_queues, picked.is_busy
  FROM _find_queues_with_places(rules.queues, rules.declared_queues);
  FOR n IN 1..cardinality(open_queues) LOOP
    EXIT WHEN cardinality(picked.jobs) >= number OR others_left <= 0;
    SELECT * INTO more
    FROM _pick_from_shared_queue(
      rules.tenant, rules.epoch, open_queues[n], rules.lanes, classes,
      number - cardinality(picked.jobs), rules.without,
      greatest(1, others_left / (cardinality(open_queues) - n + 1)));
    picked.jobs := picked.jobs || ARRAY(
      SELECT ROW(p.tid, 0, p.is_limited)::picked_job
      FROM unnest(more.tids, more.limited) p(tid, is_limited));
    others_left := others_left - more.others_read;
  END LOOP;
  IF rules.alone AND cardinality(picked.jobs) = 0 THEN
    picked.jobs := _pick_jobs_others_do_not_support(rules, open_queues, 1, true);
  END IF;
  IF cardinality(picked.limited_queues) > 0 THEN
    picked.jobs := _keep_jobs_with_places(picked.jobs);
  END IF;
  RETURN picked;
END $$;

-- Picks jobs of a tenant from one queue, in the order of priority, run_at and id, over all lanes
-- that the node may take; of a queue with very many lanes, in parts of 100 lanes. Goes on where the
-- last call of the node has stopped. A call that comes to the end of the queue and has found
-- nothing begins again at the top.
CREATE OR REPLACE FUNCTION _pick_from_shared_queue(
  acting text,
  epoch bigint,
  queue text,
  node_lanes int[],
  classes smallint[],
  max int,
  without text[],
  most_others int,
  OUT tids tid[],
  OUT limited boolean[],
  OUT others_read int
)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
  lanes_at_once int := 100;
  top int := -2147483648;
  place tenant_scans;
  is_stored boolean;
  began_at_top boolean;
  is_at_end boolean := false;
  ready_lanes int[];
  own_lanes int[];
  -- How many jobs to read of each lane and class: few at first, because they may all be the
  -- tenant's own.
  each int := _pick_from_shared_queue.max;
  streams int;
  -- Whether these lanes have more jobs than it has read.
  is_cut boolean;
  found record;
  more record;
BEGIN
  tids := '{}';
  limited := '{}';
  others_read := 0;
  SELECT * INTO place
  FROM tenant_scans s
  WHERE s.epoch = _pick_from_shared_queue.epoch
    AND s.tenant = acting
    AND s.queue = _pick_from_shared_queue.queue;
  is_stored := FOUND;
  began_at_top := NOT is_stored;
  place.lane := coalesce(place.lane, top);
  LOOP
    ready_lanes := _find_ready_lanes(
      _pick_from_shared_queue.queue, classes, place.lane, lanes_at_once);
    own_lanes := ARRAY(
      SELECT l.lane
      FROM unnest(ready_lanes) l(lane)
      WHERE l.lane = ANY (node_lanes)
        OR l.lane > 0
        AND _owns_lane(_pick_from_shared_queue.epoch, _pick_from_shared_queue.queue, l.lane));
    streams := cardinality(own_lanes) * cardinality(classes);
    is_cut := streams > 0;
    WHILE is_cut AND others_read < most_others LOOP
      each := least(each, greatest(1, (most_others - others_read) / streams));
      SELECT * INTO found
      FROM _read_for_tenant(
        acting, _pick_from_shared_queue.queue, own_lanes, classes, each, without, place.priority,
        place.run_at, place.job_id);
      others_read := others_read + found.others;
      SELECT * INTO more
      FROM _lock_for_tenant(
        acting, _pick_from_shared_queue.queue, classes, found.tids,
        _pick_from_shared_queue.max - cardinality(tids));
      tids := tids || more.tids;
      limited := limited || more.limited;
      is_cut := found.last_id IS NOT NULL;
      EXIT WHEN cardinality(tids) >= _pick_from_shared_queue.max OR NOT is_cut;
      place.priority := found.last_priority;
      place.run_at := found.last_run_at;
      place.job_id := found.last_id;
      each := each * 4;
    END LOOP;
    EXIT WHEN cardinality(tids) >= _pick_from_shared_queue.max OR is_cut;
    -- These lanes are read to their ends.
    place.priority := NULL;
    place.run_at := NULL;
    place.job_id := NULL;
    each := _pick_from_shared_queue.max;
    IF cardinality(ready_lanes) = lanes_at_once THEN
      place.lane := ready_lanes[lanes_at_once];
      -- The look for lanes has read one job of each.
      others_read := others_read + lanes_at_once;
      EXIT WHEN others_read >= most_others;
    ELSIF began_at_top OR cardinality(tids) > 0 THEN
      is_at_end := true;
      EXIT;
    ELSE
      place.lane := top;
      began_at_top := true;
    END IF;
  END LOOP;
  -- A claim that has found enough from the top on need not remember where it was.
  IF is_stored OR NOT is_at_end AND cardinality(tids) < _pick_from_shared_queue.max THEN
    place.epoch := _pick_from_shared_queue.epoch;
    place.tenant := acting;
    place.queue := _pick_from_shared_queue.queue;
    PERFORM _store_tenant_scan(place, is_at_end);
  END IF;
END $$;

-- Stores where the next claim goes on, or that it begins at the top. Skips the write if another
-- claim of the node is about to write: the two have then read the same jobs.
CREATE OR REPLACE FUNCTION _store_tenant_scan(place tenant_scans, is_at_end boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
BEGIN
  IF NOT pg_try_advisory_xact_lock(
    _lock_class_turns(), hashtext(format('%s:%s:%s', place.epoch, place.tenant, place.queue))) THEN
    RETURN;
  END IF;
  DELETE FROM tenant_scans s
  WHERE s.epoch = place.epoch
    AND s.tenant = place.tenant
    AND s.queue = place.queue;
  IF NOT is_at_end THEN INSERT INTO tenant_scans SELECT place.*; END IF;
END $$;

-- Lists the lanes above `after` that have ready jobs of these classes, at most `max`. Reads one
-- index entry per lane and class.
CREATE OR REPLACE FUNCTION _find_ready_lanes(
  queue text,
  classes smallint[],
  after int,
  max int
)
RETURNS int[]
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
DECLARE
  lanes int[] := '{}';
  reached int := after;
BEGIN
  WHILE cardinality(lanes) < _find_ready_lanes.max LOOP
    reached := (
      SELECT min(x.lane)
      FROM unnest(classes) c(class)
      CROSS JOIN LATERAL (
        SELECT j.lane
        FROM jobs j
        WHERE j.queue = _find_ready_lanes.queue
          AND j.class = c.class
          AND j.lane > reached
          AND j.wait IS NULL
          AND j.fence = 0
        ORDER BY j.lane
        LIMIT 1) x);
    EXIT WHEN reached IS NULL;
    lanes := lanes || reached;
  END LOOP;
  RETURN lanes;
END $$;

-- Reads up to `each` ready jobs of each lane and class, from the place after the given job on;
-- without a job, from the beginning. Returns the tenant's jobs among them, in order, and how many
-- others it has read. A lane of which it has read `each` jobs may have more. So it leaves out the
-- jobs that come after the last job read of any such lane, and returns the first of these last jobs
-- as the place where to go on; NULL if all lanes have been read to their ends. Locks nothing.
CREATE OR REPLACE FUNCTION _read_for_tenant(
  acting text,
  queue text,
  lanes int[],
  classes smallint[],
  each int,
  without text[],
  after_priority smallint,
  after_run_at timestamptz,
  after_id uuid,
  OUT tids tid[],
  OUT others int,
  OUT last_priority smallint,
  OUT last_run_at timestamptz,
  OUT last_id uuid
)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
BEGIN
  WITH jobs_read AS MATERIALIZED (
      SELECT
        x.ctid, x.priority, x.run_at, x.id,
        x.tenant = acting AND (without IS NULL OR x.type <> ALL (without)) AS is_own,
        row_number() OVER (
          PARTITION BY l.lane, c.class
          ORDER BY x.priority DESC, x.run_at, x.id) AS place
      FROM unnest(lanes) l(lane)
      CROSS JOIN unnest(classes) c(class)
      CROSS JOIN LATERAL (
        (
          SELECT j.ctid, j.priority, j.run_at, j.id, j.tenant, j.type
          FROM jobs j
          WHERE j.queue = _read_for_tenant.queue
            AND j.class = c.class
            AND j.lane = l.lane
            AND j.priority = after_priority
            AND (j.run_at, j.id) > (after_run_at, after_id)
            AND j.wait IS NULL
            AND j.fence = 0
          ORDER BY j.run_at, j.id
          LIMIT each)
        UNION ALL
        (
          SELECT j.ctid, j.priority, j.run_at, j.id, j.tenant, j.type
          FROM jobs j
          WHERE j.queue = _read_for_tenant.queue
            AND j.class = c.class
            AND j.lane = l.lane
            AND j.priority < coalesce(after_priority::int, 32768)
            AND j.wait IS NULL
            AND j.fence = 0
          ORDER BY j.priority DESC, j.run_at, j.id
          LIMIT each)
        LIMIT each) x),
    last_read AS MATERIALIZED (
      SELECT r.priority, r.run_at, r.id
      FROM jobs_read r
      WHERE r.place = each
      ORDER BY r.priority DESC, r.run_at, r.id
      LIMIT 1)
  SELECT
    coalesce(
      array_agg(r.ctid ORDER BY r.priority DESC, r.run_at, r.id) FILTER (
        WHERE r.is_own
          AND (
            l.id IS NULL
            OR (-r.priority, r.run_at, r.id) <= (-l.priority, l.run_at, l.id))),
      '{}'),
    count(r.id) FILTER (WHERE NOT r.is_own),
    min(l.priority), min(l.run_at), (array_agg(l.id))[1]
  INTO tids, others, last_priority, last_run_at, last_id
  FROM jobs_read r
  LEFT JOIN last_read l ON true;
END $$;

-- Locks the first `max` of these jobs that are still ready and belong to the tenant.
CREATE OR REPLACE FUNCTION _lock_for_tenant(
  acting text,
  queue text,
  classes smallint[],
  candidates tid[],
  max int,
  OUT tids tid[],
  OUT limited boolean[]
)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
BEGIN
  SELECT coalesce(array_agg(y.ctid), '{}'), coalesce(array_agg(y.is_limited), '{}')
  INTO tids, limited
  FROM (
    SELECT x.ctid, x.is_limited
    FROM unnest(candidates) p(tid)
    CROSS JOIN LATERAL (
      SELECT
        j.ctid, j.queue, j.class, j.tenant, j.wait, j.fence, j.limit_keys IS NOT NULL AS is_limited
      FROM jobs j
      WHERE j.ctid = p.tid
      -- Keeps the conditions outside: a plan for an empty table would read the index for them.
      OFFSET 0
      FOR UPDATE SKIP LOCKED) x
    WHERE x.queue = _lock_for_tenant.queue
      AND x.class = ANY (classes)
      AND x.tenant = acting
      AND x.wait IS NULL
      AND x.fence = 0
    LIMIT _lock_for_tenant.max) y;
END $$;

-- Deletes the places of a node that has ended.
CREATE OR REPLACE FUNCTION _forget_tenant_scans(epoch bigint)
RETURNS void
LANGUAGE sql VOLATILE
AS $$ DELETE FROM tenant_scans s WHERE s.epoch = _forget_tenant_scans.epoch $$;

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
      rules, open_queues[n], classes, number - cardinality(picked.jobs),
      greatest(1, others_left / (cardinality(open_queues) - n + 1)));
    picked.jobs := picked.jobs || more.jobs;
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
  rules claim_rules, queue text, classes smallint[], max int, most_others int,
  OUT jobs picked_job[], OUT others_read int
)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  lanes_at_once int := 100;
  top tenant_scans := (rules.epoch, rules.tenant, queue, -2147483648, NULL, NULL, NULL);
  place tenant_scans;
  is_stored boolean;
  began_at_top boolean;
  is_at_end boolean := false;
  ready_lanes int[];
  own_lanes int[];
  more record;
BEGIN
  jobs := '{}';
  others_read := 0;
  SELECT * INTO place
  FROM tenant_scans s
  WHERE s.epoch = rules.epoch
    AND s.tenant = rules.tenant
    AND s.queue = queue;
  is_stored := FOUND;
  began_at_top := NOT is_stored;
  IF began_at_top THEN place := top; END IF;
  LOOP
    ready_lanes := _find_ready_lanes(queue, classes, place.lane, lanes_at_once);
    own_lanes := ARRAY(
      SELECT l.lane
      FROM unnest(ready_lanes) l(lane)
      WHERE l.lane = ANY (rules.lanes)
        OR l.lane > 0 AND _owns_lane(rules.epoch, queue, l.lane));
    SELECT * INTO more
    FROM _pick_from_shared_lanes(
      place, own_lanes, classes, max - cardinality(jobs), most_others - others_read, rules.without);
    jobs := jobs || more.jobs;
    others_read := others_read + more.others_read;
    place := more.reached;
    EXIT WHEN cardinality(jobs) >= max OR more.is_cut;
    -- These lanes are read to their ends.
    IF cardinality(ready_lanes) = lanes_at_once THEN
      place := top;
      place.lane := ready_lanes[lanes_at_once];
      -- The look for lanes has read one job of each.
      others_read := others_read + lanes_at_once;
      EXIT WHEN others_read >= most_others;
    ELSIF began_at_top OR cardinality(jobs) > 0 THEN
      is_at_end := true;
      EXIT;
    ELSE
      place := top;
      began_at_top := true;
    END IF;
  END LOOP;
  -- A claim that has found enough from the top on need not remember where it was.
  IF is_stored OR NOT is_at_end AND cardinality(jobs) < max THEN
    PERFORM _store_tenant_scan(place, is_at_end);
  END IF;
END $$;

-- Picks jobs of a tenant from these lanes of a queue, from the given place on. `reached`: the place
-- of the last job that it has read. `is_cut`: the lanes have more jobs than it has read.
CREATE OR REPLACE FUNCTION _pick_from_shared_lanes(
  place tenant_scans, lanes int[], classes smallint[], max int, most_others int, without text[],
  OUT jobs picked_job[], OUT others_read int, OUT reached tenant_scans, OUT is_cut boolean
)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  streams int := cardinality(lanes) * cardinality(classes);
  -- How many jobs to read of each lane and class: few at first, because they may all be the
  -- tenant's own.
  each int := max;
  read record;
BEGIN
  jobs := '{}';
  others_read := 0;
  reached := place;
  is_cut := streams > 0;
  WHILE is_cut AND others_read < most_others LOOP
    each := least(each, greatest(1, (most_others - others_read) / streams));
    SELECT * INTO read FROM _read_for_tenant(reached, lanes, classes, each, without);
    others_read := others_read + read.others;
    jobs := jobs || _lock_for_tenant(reached, classes, read.tids, max - cardinality(jobs));
    is_cut := read.last_id IS NOT NULL;
    EXIT WHEN cardinality(jobs) >= max OR NOT is_cut;
    reached.priority := read.last_priority;
    reached.run_at := read.last_run_at;
    reached.job_id := read.last_id;
    each := each * 4;
  END LOOP;
END $$;

-- Stores where the next claim goes on, or that it begins at the top. Skips the write if another
-- claim of the node is about to write: the two have then read the same jobs.
CREATE OR REPLACE FUNCTION _store_tenant_scan(place tenant_scans, is_at_end boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
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
CREATE OR REPLACE FUNCTION _find_ready_lanes(queue text, classes smallint[], after int, max int)
RETURNS int[]
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
DECLARE
  lanes int[] := '{}';
  reached int := after;
BEGIN
  WHILE cardinality(lanes) < max LOOP
    reached := (
      SELECT min(x.lane)
      FROM unnest(classes) c(class)
      CROSS JOIN LATERAL (
        SELECT j.lane
        FROM jobs j
        WHERE j.queue = queue
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
  after tenant_scans, lanes int[], classes smallint[], each int, without text[], OUT tids tid[],
  OUT others int, OUT last_priority smallint, OUT last_run_at timestamptz, OUT last_id uuid
)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
BEGIN
  WITH jobs_read AS MATERIALIZED (
      SELECT
        x.ctid, x.priority, x.run_at, x.id,
        x.tenant = after.tenant AND (without IS NULL OR x.type <> ALL (without)) AS is_own,
        row_number() OVER (
          PARTITION BY l.lane, c.class
          ORDER BY x.priority DESC, x.run_at, x.id) AS place
      FROM unnest(lanes) l(lane)
      CROSS JOIN unnest(classes) c(class)
      CROSS JOIN LATERAL (
        (
          SELECT j.ctid, j.priority, j.run_at, j.id, j.tenant, j.type
          FROM jobs j
          WHERE j.queue = after.queue
            AND j.class = c.class
            AND j.lane = l.lane
            AND j.priority = after.priority
            AND (j.run_at, j.id) > (after.run_at, after.job_id)
            AND j.wait IS NULL
            AND j.fence = 0
          ORDER BY j.run_at, j.id
          LIMIT each)
        UNION ALL
        (
          SELECT j.ctid, j.priority, j.run_at, j.id, j.tenant, j.type
          FROM jobs j
          WHERE j.queue = after.queue
            AND j.class = c.class
            AND j.lane = l.lane
            AND j.priority < coalesce(after.priority::int, 32768)
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

-- Locks the first `max` of these jobs that are still ready and belong to the tenant of `place`.
CREATE OR REPLACE FUNCTION _lock_for_tenant(
  place tenant_scans, classes smallint[], candidates tid[], max int
)
RETURNS picked_job[]
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  RETURN ARRAY(
    SELECT ROW(x.ctid, 0, x.is_limited)::picked_job
    FROM unnest(candidates) p(tid)
    CROSS JOIN LATERAL (
      SELECT
        j.ctid, j.queue, j.class, j.tenant, j.wait, j.fence, j.limit_keys IS NOT NULL AS is_limited
      FROM jobs j
      WHERE j.ctid = p.tid
      -- Keeps the conditions outside: a plan for an empty table would read the index for them.
      OFFSET 0
      FOR UPDATE SKIP LOCKED) x
    WHERE x.queue = place.queue
      AND x.class = ANY (classes)
      AND x.tenant = place.tenant
      AND x.wait IS NULL
      AND x.fence = 0
    LIMIT max);
END $$;

-- Deletes the places of a node that has ended.
CREATE OR REPLACE FUNCTION _forget_tenant_scans(epoch bigint)
RETURNS void
LANGUAGE sql VOLATILE
AS $$ DELETE FROM tenant_scans s WHERE s.epoch = _forget_tenant_scans.epoch $$;

-- Limits, rates and order: which of the picked jobs may start. docs/explanation/flow_control.md

-- Makes the states of keys that have none. Sorted against deadlocks: a second claim of a new key
-- waits here for the first.
CREATE OR REPLACE FUNCTION _make_limit_states(keys text[])
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
BEGIN
  INSERT INTO limit_states (key, name)
  SELECT k.key, _limit_name(k.key)
  FROM unnest(keys) k(key)
  -- LIMIT keeps the planner from reading the whole table.
  WHERE (SELECT true FROM limit_states s WHERE s.key = k.key LIMIT 1) IS NULL
  ORDER BY k.key COLLATE "C"
  ON CONFLICT DO NOTHING;
END $$;

-- As _make_limit_states(), but makes no states while another transaction makes one of them. For a
-- claim that has made states before: two such claims may meet the keys of each other.
CREATE OR REPLACE FUNCTION _try_to_make_limit_states(keys text[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '1ms'
AS $$
BEGIN
  PERFORM _make_limit_states(keys);
EXCEPTION WHEN lock_not_available THEN
  NULL;
END $$;

-- How many jobs of these keys may start now, besides those that hold them. The caller has locked
-- their states in an earlier statement. All results have one element per key, in their order;
-- `heads` is NULL if no key has an order.
--   places      2147483647: any number
--   heads       of an ordered key the job that holds it, or else the first one, finished ones
--               aside: only this job may start, and only if no other job holds the key
--   steps       of a rate, in microseconds; 0: no rate
CREATE OR REPLACE FUNCTION _count_places(
  keys text[],
  t timestamptz,
  OUT places int[],
  OUT is_ordered boolean[],
  OUT heads uuid[],
  OUT steps bigint[]
)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
DECLARE
  bursts int[];
BEGIN
  SELECT
    array_agg(coalesce(k.max - k.held, 2147483647)), array_agg(k.is_ordered), array_agg(k.step),
    array_agg(k.burst)
  INTO places, is_ordered, steps, bursts
  FROM (
    SELECT
      l.max,
      (SELECT count(*)::int FROM holds h WHERE h.key = k.key) AS held,
      starts_with(k.key, 'order:') AS is_ordered,
      CASE WHEN l.count IS NULL THEN 0 ELSE _rate_step(l.count, l.per, l.burst) END AS step,
      l.burst
    FROM unnest(keys) WITH ORDINALITY k(key, number)
    -- LIMIT makes every plan look the keys up one by one, also one made when there were none.
    LEFT JOIN LATERAL (SELECT * FROM limits x WHERE x.name = _limit_name(k.key) LIMIT 1) l ON true
    ORDER BY k.number) k;
  IF true = ANY (is_ordered) THEN
    SELECT array_agg(k.places), array_agg(k.head)
    INTO places, heads
    FROM (
      SELECT
        CASE
          WHEN k.is_ordered THEN (
            SELECT 1 - count(*)
            FROM holds h
            WHERE h.key = k.key
              AND h.job_id IS DISTINCT FROM head.id)
          ELSE k.places
        END::int AS places,
        head.id AS head
      FROM unnest(keys, places, is_ordered) WITH ORDINALITY k(key, places, is_ordered, number)
      LEFT JOIN LATERAL (
        SELECT coalesce(
          -- A job that has the key and is tried again. It keeps the key also before an earlier one
          -- that came late: its enqueue committed later, or it was finished and is run again.
          (
            SELECT j.id
            FROM holds h
            JOIN jobs j ON j.id = h.job_id
            WHERE h.key = k.key
              AND j.order_key = k.key
            LIMIT 1),
          (
            SELECT j.id
            FROM jobs j
            WHERE j.order_key = k.key
            ORDER BY j.seq
            LIMIT 1)) AS id
        WHERE k.is_ordered) head ON true
      ORDER BY k.number) k;
  END IF;
  IF 0 < ANY (steps) THEN
    places := ARRAY(
      SELECT least(k.places, r.starts)
      FROM unnest(keys, places, steps, bursts) WITH ORDINALITY k(key, places, step, burst, number)
      LEFT JOIN LATERAL (
        SELECT
          k.burst - least(
            k.burst,
            ceil(greatest(0, extract(epoch FROM s.arrival - t) * 1000000) / k.step))::int AS starts
        FROM limit_states s
        WHERE s.key = k.key
          AND k.step > 0
        LIMIT 1) r ON true
      ORDER BY k.number);
  END IF;
END $$;

-- Decides which of the picked jobs may start. `candidates` are positions in `tids`, in their order;
-- `limited` says which jobs in `tids` have limit keys. Returns those that may start, in no order:
-- at most `max`, and jobs of class 1 only among the first `free`. Jobs whose key is full are set
-- aside. The jobs of a key whose state another transaction has locked stay ready; `is_busy` says
-- so. The caller has locked the jobs; this locks the states of their keys, and does not wait for
-- them. `may_wait`: this is the first call of the transaction, so it may wait for another one that
-- makes a state.
--
-- Works on arrays in place of joins: the number of a job is its position in `judged`, the number of
-- a key its position in `keys`. A join of a thousand jobs would depend on a plan that was made for
-- ten.
CREATE OR REPLACE FUNCTION _pass_limits(
  tids tid[],
  limited boolean[],
  candidates int[],
  max int,
  free int,
  may_wait boolean,
  t timestamptz,
  OUT passed int[],
  OUT is_busy boolean
)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
  -- There are more candidates than may start, so jobs without keys have to be counted too.
  is_crowded boolean := cardinality(candidates) > _pass_limits.max;
  -- The jobs that need a decision, as positions in `candidates`.
  judged int[] := ARRAY(
    SELECT c.position::int
    FROM unnest(candidates) WITH ORDINALITY c(place, position)
    WHERE is_crowded
      OR limited[c.place]);
  -- One element per job and key, by key and job. The rank counts the jobs of the key. A job without
  -- keys has an element too, whose key has a number behind the last.
  item_jobs int[];
  item_keys int[];
  item_ranks int[];
  item_ids uuid[];
  item_classes smallint[];
  item_lanes int[];
  -- One element per key: see _count_places(). `left_places`: after this claim.
  keys text[];
  locked text[];
  is_locked boolean[];
  places int[];
  is_ordered boolean[];
  heads uuid[];
  steps bigint[];
  left_places int[];
  -- One element per job: whether it may start, and the key on which it is parked, 0: none.
  passes boolean[];
  parked_on int[];
  has_rates boolean;
  -- A key as often as it has a place that a job has not taken because of another key.
  moved_keys text[];
BEGIN
  SELECT
    array_agg(x.job), array_agg(x.key_number), array_agg(x.rank), array_agg(x.id),
    array_agg(x.class), array_agg(x.lane),
    coalesce(array_agg(x.key) FILTER (WHERE x.rank = 1 AND x.key IS NOT NULL), '{}')
  INTO item_jobs, item_keys, item_ranks, item_ids, item_classes, item_lanes, keys
  FROM (
    SELECT
      c.job::int,
      dense_rank() OVER (ORDER BY k.key)::int AS key_number,
      row_number() OVER (PARTITION BY k.key ORDER BY c.job)::int AS rank,
      j.id,
      j.class,
      j.lane,
      k.key
    FROM unnest(judged) WITH ORDINALITY c(position, job)
    JOIN jobs j ON j.ctid = tids[candidates[c.position]]
    LEFT JOIN LATERAL unnest(j.limit_keys) k(key) ON true) x;
  FOR attempt IN 1..2 LOOP
    locked := ARRAY(
      SELECT s.key FROM limit_states s WHERE s.key = ANY (keys) FOR UPDATE SKIP LOCKED);
    is_busy := cardinality(locked) < cardinality(keys);
    EXIT WHEN NOT is_busy OR attempt = 2;
    IF may_wait THEN
      PERFORM _make_limit_states(ARRAY(SELECT k FROM unnest(keys) k EXCEPT SELECT unnest(locked)));
    ELSE
      PERFORM _try_to_make_limit_states(
        ARRAY(SELECT k FROM unnest(keys) k EXCEPT SELECT unnest(locked)));
    END IF;
  END LOOP;
  -- A new statement, so that it sees what the last holders of the locks have committed.
  SELECT c.places, c.is_ordered, c.heads, c.steps
  INTO places, is_ordered, heads, steps
  FROM _count_places(keys, t) c;
  -- Often all may start, and nothing else has to be written.
  IF NOT is_busy AND NOT is_crowded AND NOT EXISTS (
    SELECT
    FROM unnest(item_keys, item_ranks, item_classes, item_lanes) i(key, rank, class, lane)
    WHERE i.rank > places[i.key]
      OR is_ordered[i.key]
      OR steps[i.key] > 0
      OR i.class = 1
      OR i.lane <> 0) THEN
    passed := candidates;
    RETURN;
  END IF;
  is_locked := ARRAY(SELECT NOT is_busy OR k = ANY (locked) FROM unnest(keys) k);
  passes := ARRAY(
    SELECT
      x.may_start
        AND x.rank <= _pass_limits.max
        AND (x.class <> 1 OR x.rank <= _pass_limits.free)
    FROM (
      SELECT
        i.job,
        min(i.class) AS class,
        bool_and(i.may_start) AS may_start,
        -- All jobs between two judged ones start.
        judged[i.job] - i.job
          + row_number() OVER (PARTITION BY bool_and(i.may_start) ORDER BY i.job) AS rank
      FROM (
        SELECT
          i.job,
          i.class,
          i.key > cardinality(keys) OR is_locked[i.key] AND CASE
            WHEN is_ordered[i.key] THEN i.id = heads[i.key] AND places[i.key] > 0
            ELSE i.rank <= places[i.key] AND (steps[i.key] = 0 OR i.class <> 0)
          END AS may_start
        FROM unnest(item_jobs, item_keys, item_ranks, item_ids, item_classes)
          i(job, key, rank, id, class)) i
      GROUP BY i.job) x
    ORDER BY x.job);
  passed := ARRAY(
    SELECT candidates[judged[p.job]]
    FROM unnest(passes) WITH ORDINALITY p(passes, job)
    WHERE p.passes
    UNION ALL
    SELECT c.place
    FROM unnest(candidates) c(place)
    WHERE NOT is_crowded
      AND NOT limited[c.place]);
  IF 0 <> ANY (item_lanes) THEN
    UPDATE limit_states s
    SET lane_cursor = coalesce(x.lane, s.lane_cursor, 0)
    FROM (
      SELECT
        keys[i.key] AS key,
        (array_agg(i.lane ORDER BY i.job DESC)
          FILTER (WHERE passes[i.job] AND i.lane > 0))[1] AS lane
      FROM unnest(item_jobs, item_keys, item_lanes) i(job, key, lane)
      WHERE is_locked[i.key]
        AND i.lane <> 0
      GROUP BY i.key) x
    WHERE s.key = x.key
      AND s.lane_cursor IS DISTINCT FROM coalesce(x.lane, s.lane_cursor, 0);
  END IF;
  has_rates := 0 < ANY (steps);
  IF NOT has_rates AND true = ALL (passes) THEN RETURN; END IF;
  left_places := ARRAY(
    SELECT places[i.key] - count(*) FILTER (WHERE passes[i.job])
    FROM unnest(item_jobs, item_keys) i(job, key)
    WHERE i.key <= cardinality(keys)
    GROUP BY i.key
    ORDER BY i.key);
  IF has_rates THEN
    -- The rate was declared after these jobs were enqueued.
    UPDATE jobs j
    SET class = 1
    WHERE j.ctid = ANY (ARRAY(
        SELECT tids[candidates[judged[i.job]]]
        FROM unnest(item_jobs, item_keys) i(job, key)
        WHERE is_locked[i.key]
          AND steps[i.key] > 0))
      AND j.class = 0;
  END IF;
  -- Parks each job that cannot start on the first of its keys that is full.
  parked_on := ARRAY(
    SELECT coalesce(
      min(i.key) FILTER (
        WHERE NOT passes[i.job]
          AND is_locked[i.key]
          AND (is_ordered[i.key] AND i.id <> heads[i.key] OR left_places[i.key] <= 0)),
      0)
    FROM unnest(item_jobs, item_keys, item_ids) i(job, key, id)
    GROUP BY i.job
    ORDER BY i.job);
  IF 0 < ANY (parked_on) THEN
    PERFORM _set_full_jobs_aside(
      array_agg(tids[candidates[judged[p.job]]]), array_agg(keys[p.key]), t)
    FROM unnest(parked_on) WITH ORDINALITY p(key, job)
    WHERE p.key > 0;
  END IF;
  IF has_rates THEN
    PERFORM _count_starts(array_agg(k.key), array_agg(k.places - k.left_places), t)
    FROM unnest(keys, steps, is_locked, places, left_places)
      k(key, step, is_locked, places, left_places)
    WHERE k.step > 0
      AND k.is_locked;
  END IF;
  -- Only jobs with several keys leave a place of another key unused.
  IF cardinality(item_jobs) > cardinality(judged) THEN
    moved_keys := ARRAY(
      SELECT keys[i.key]
      FROM unnest(item_jobs, item_keys, item_ids) i(job, key, id)
      WHERE parked_on[i.job] > 0
        AND i.key <> parked_on[i.job]
        AND is_locked[i.key]
        AND NOT (is_ordered[i.key] AND i.id <> heads[i.key])
        AND left_places[i.key] > 0);
    IF cardinality(moved_keys) > 0 THEN PERFORM _unpark_places(moved_keys, t); END IF;
  END IF;
END $$;

-- Parks jobs whose key is full, or ends them, as the rule of the key says. The caller has locked
-- the jobs and the states of the keys.
CREATE OR REPLACE FUNCTION _set_full_jobs_aside(tids tid[], keys text[], t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
  endings ending[];
  replacing text[];
BEGIN
  IF EXISTS (SELECT FROM limits l WHERE l.when_full <> 'wait') THEN
    endings := ARRAY(
      SELECT ROW(
        j.id, 0, 'canceled', 'canceled', NULL, NULL, NULL,
        jsonb_build_object('kind', 'canceled', 'message', format('limit %s is full', x.key))
      )::ending
      FROM unnest(tids, keys) x(tid, key)
      JOIN jobs j ON j.ctid = x.tid
      JOIN limits l ON l.name = _limit_name(x.key) AND l.when_full = 'discard');
    replacing := ARRAY(
      SELECT DISTINCT x.key
      FROM unnest(keys) x(key)
      JOIN limits l ON l.name = _limit_name(x.key) AND l.when_full = 'replace');
  END IF;
  UPDATE jobs j
  SET wait = 'parked', wait_key = x.key
  FROM unnest(tids, keys) x(tid, key)
  WHERE j.ctid = x.tid;
  IF cardinality(endings) > 0 THEN
    PERFORM _announce_if_waiting(e.freed) FROM _finish_jobs(endings, NULL, t) e;
  END IF;
  IF cardinality(replacing) > 0 THEN PERFORM _replace_waiting_jobs(replacing, t); END IF;
END $$;

-- As _announce_freed(), only for keys for which jobs wait. For claims, which have locked the states
-- of the keys, so that no other claim parks a job meanwhile; and for producers, which are many.
CREATE OR REPLACE FUNCTION _announce_if_waiting(freed text[])
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  PERFORM _announce_freed(array_agg(k.key))
  FROM (SELECT DISTINCT x FROM unnest(freed) x) k(key)
  WHERE EXISTS (SELECT FROM jobs j WHERE j.wait = 'parked' AND j.wait_key = k.key);
END $$;

-- Keeps only the newest of the jobs that wait for each of these keys, and asks the oldest job that
-- holds the key to stop, if it is older. Cancels the others. All this within each tenant: a job
-- never replaces or stops one of another tenant, whose text it may have as its key. Skips jobs that
-- are locked: the transaction that has locked them ends or moves them.
CREATE OR REPLACE FUNCTION _replace_waiting_jobs(keys text[], t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
  replaced text := 'replaced by a newer job of the same key';
  stopping uuid[];
BEGIN
  PERFORM _announce_if_waiting(e.freed)
  FROM _finish_jobs(
    ARRAY(
      SELECT ROW(
        j.id, 0, 'canceled', 'canceled', NULL, NULL, NULL,
        jsonb_build_object('kind', 'canceled', 'message', replaced))::ending
      FROM unnest(keys) k(key)
      JOIN jobs j ON j.wait = 'parked' AND j.wait_key = k.key
      WHERE j.seq < (
          SELECT max(x.seq)
          FROM jobs x
          WHERE x.wait = 'parked'
            AND x.wait_key = k.key
            AND x.tenant = j.tenant)
        OR EXISTS (
          SELECT
          FROM holds h
          JOIN jobs x ON x.id = h.job_id
          WHERE h.key = k.key
            AND x.tenant = j.tenant
            AND x.seq > j.seq)
      FOR UPDATE OF j SKIP LOCKED),
    NULL, t) e;
  stopping := ARRAY(
    SELECT j.id
    FROM jobs j
    WHERE j.id = ANY (ARRAY(
        SELECT o.job_id
        FROM unnest(keys) k(key)
        JOIN jobs w ON w.wait = 'parked' AND w.wait_key = k.key
        CROSS JOIN LATERAL (
          SELECT h.job_id
          FROM holds h
          JOIN jobs x ON x.id = h.job_id
          WHERE h.key = k.key
            AND x.tenant = w.tenant
          ORDER BY x.seq
          LIMIT 1) o))
      AND j.fence <> 0
      AND NOT j.canceling
    FOR NO KEY UPDATE OF j SKIP LOCKED);
  PERFORM _request_stop(s, replaced, t) FROM unnest(stopping) s;
END $$;

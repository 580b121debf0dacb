-- Limits, rates and order: which of the picked jobs may start. docs/explanation/flow_control.md

-- Decides which of the picked jobs may start: at most `max`, and jobs of class 1 only among the
-- first `free`. Returns those, in no order. Jobs whose key is full are set aside. The jobs of a key
-- whose state another transaction has locked stay ready; `is_busy` says so. The caller has locked
-- the jobs; this locks the states of their keys, and does not wait for them. `may_wait`: this is
-- the first call of the transaction, so it may wait for another one that makes a state.
--
-- The steps find jobs and keys by their numbers, in arrays, and not by joins. A join of a thousand
-- jobs would depend on a plan that was made for ten.
CREATE OR REPLACE FUNCTION _pass_limits(
  picked pick,
  max int,
  free int,
  may_wait boolean,
  t timestamptz
)
RETURNS pick
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  jobs picked_job[] := picked.jobs;
  -- There are more jobs than may start, so those without keys have to be counted too.
  is_crowded boolean := cardinality(jobs) > max;
  keys text[];
  busy text[];
  demands key_demand[];
  places key_place[];
  verdicts verdict[];
  left_places int[];
BEGIN
  picked.is_busy := false;
  IF NOT (picked.is_limited OR is_crowded) THEN RETURN picked; END IF;
  SELECT d.demands, d.keys INTO demands, keys FROM _list_demands(jobs, is_crowded) d;
  busy := _lock_keys(keys, may_wait);
  picked.is_busy := cardinality(busy) > 0;
  -- A new statement, so that it sees what the last holders of the locks have committed.
  places := _count_places(keys, busy, t);
  -- Often all may start, and nothing else has to be written.
  IF NOT picked.is_busy AND NOT is_crowded AND NOT EXISTS (
    SELECT
    FROM (SELECT d.*, places[d.key] AS place FROM unnest(demands) d OFFSET 0) d
    WHERE d.rank > (d.place).places
      OR (d.place).is_ordered
      OR (d.place).new_places IS NOT NULL
      OR d.class = 1
      OR d.lane <> 0) THEN
    RETURN picked;
  END IF;
  SELECT j.verdicts, j.left_places INTO verdicts, left_places
  FROM _judge_demands(demands, places, max, free) j;
  PERFORM _write_verdicts(jobs, demands, places, verdicts, left_places, t);
  picked.jobs := ARRAY(
    SELECT jobs[v.position]
    FROM unnest(verdicts) v
    WHERE v.may_start
    UNION ALL
    SELECT p
    FROM unnest(jobs) p
    WHERE NOT is_crowded
      AND NOT p.is_limited);
  RETURN picked;
END $$;

-- Lists the demands of the jobs that have limit keys, or of all jobs, by key and job; and the keys.
CREATE OR REPLACE FUNCTION _list_demands(
  jobs picked_job[],
  of_all boolean,
  OUT demands key_demand[],
  OUT keys text[]
)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
BEGIN
  SELECT
    coalesce(
      array_agg(
        ROW(x.job, x.position, x.key_number, x.rank, x.id, x.class, x.lane)::key_demand),
      '{}'),
    coalesce(array_agg(x.key) FILTER (WHERE x.rank = 1 AND x.key IS NOT NULL), '{}')
  INTO demands, keys
  FROM (
    SELECT
      p.job,
      p.position,
      dense_rank() OVER (ORDER BY k.key) AS key_number,
      row_number() OVER (PARTITION BY k.key ORDER BY p.job) AS rank,
      j.id,
      j.class,
      j.lane,
      k.key
    FROM (
      SELECT p.tid, p.position, row_number() OVER (ORDER BY p.position) AS job
      FROM unnest(jobs) WITH ORDINALITY p(tid, turn, is_limited, position)
      WHERE of_all
        OR p.is_limited) p
    JOIN jobs j ON j.ctid = p.tid
    LEFT JOIN LATERAL unnest(j.limit_keys) k(key) ON true
    ORDER BY k.key, p.job) x;
END $$;

-- Judges which jobs may start: one verdict for each job, in the order of their numbers. A job may
-- start if it is within the places of all its keys. If not, it is parked on the first of them that
-- is full. `left_places`: how many places of each key are left by those that may start. A subquery
-- with OFFSET 0 looks up the place of each demand once.
CREATE OR REPLACE FUNCTION _judge_demands(
  demands key_demand[],
  places key_place[],
  max int,
  free int,
  OUT verdicts verdict[],
  OUT left_places int[]
)
LANGUAGE plpgsql IMMUTABLE
AS $$
#variable_conflict use_variable
DECLARE
  passes boolean[] := ARRAY(
    SELECT x.may_start AND x.rank <= max AND (x.class <> 1 OR x.rank <= free)
    FROM (
      SELECT
        d.job,
        min(d.class) AS class,
        bool_and(d.may_start) AS may_start,
        -- The number of the job among those that start. Jobs without keys, which all start, are
        -- not in `demands`: before this one there are `position - job` of them.
        min(d.position) - d.job
          + row_number() OVER (PARTITION BY bool_and(d.may_start) ORDER BY d.job) AS rank
      FROM (
        SELECT
          d.job, d.position, d.class,
          d.key > cardinality(places) OR (d.place).is_locked AND CASE
            WHEN (d.place).is_ordered THEN d.id = (d.place).head AND (d.place).places > 0
            ELSE d.rank <= (d.place).places AND ((d.place).new_places IS NULL OR d.class <> 0)
          END AS may_start
        FROM (SELECT d.*, places[d.key] AS place FROM unnest(demands) d OFFSET 0) d) d
      GROUP BY d.job) x
    ORDER BY x.job);
BEGIN
  left_places := ARRAY(
    SELECT (places[d.key]).places - count(*) FILTER (WHERE passes[d.job])
    FROM unnest(demands) d
    WHERE d.key <= cardinality(places)
    GROUP BY d.key
    ORDER BY d.key);
  verdicts := ARRAY(
    SELECT ROW(
      min(d.position),
      passes[d.job],
      coalesce(
        min(d.key) FILTER (
          WHERE NOT passes[d.job]
            AND (d.place).is_locked
            AND (
              (d.place).is_ordered AND d.id <> (d.place).head OR left_places[d.key] <= 0)),
        0))::verdict
    FROM (SELECT d.*, places[d.key] AS place FROM unnest(demands) d OFFSET 0) d
    GROUP BY d.job
    ORDER BY d.job);
END $$;

-- Writes what was judged. Parks jobs, counts starts of rates, and makes other jobs ready for places
-- that a parked job leaves unused. The caller has locked the jobs and the states of the keys.
CREATE OR REPLACE FUNCTION _write_verdicts(
  jobs picked_job[],
  demands key_demand[],
  places key_place[],
  verdicts verdict[],
  left_places int[],
  t timestamptz
)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  has_rates boolean := EXISTS (SELECT FROM unnest(places) k WHERE k.new_places IS NOT NULL);
  -- A key as often as it has a place that a job has not taken because of another key.
  moved_keys text[];
BEGIN
  IF EXISTS (SELECT FROM unnest(demands) d WHERE d.lane <> 0) THEN
    PERFORM _write_lanes_served(demands, places, verdicts);
  END IF;
  IF has_rates THEN
    -- The rate was declared after these jobs were enqueued.
    UPDATE jobs j
    SET class = 1
    WHERE j.ctid = ANY (ARRAY(
        SELECT (jobs[d.position]).tid
        FROM unnest(demands) d
        WHERE (places[d.key]).is_locked
          AND (places[d.key]).new_places IS NOT NULL))
      AND j.class = 0;
  END IF;
  PERFORM _set_full_jobs_aside(
    array_agg((jobs[v.position]).tid), array_agg((places[v.parked_on]).key), t)
  FROM unnest(verdicts) v
  WHERE v.parked_on > 0
  HAVING count(*) > 0;
  IF has_rates THEN
    PERFORM _count_starts(array_agg(k.key), array_agg(k.places - left_places[k.number]), t)
    FROM unnest(places) WITH ORDINALITY
      k(places, new_places, is_locked, is_ordered, key, head, number)
    WHERE k.new_places IS NOT NULL
      AND k.is_locked;
  END IF;
  -- Only jobs with several keys leave a place of another key unused.
  IF cardinality(demands) > cardinality(verdicts) THEN
    moved_keys := ARRAY(
      SELECT (d.place).key
      FROM (
        SELECT d.*, places[d.key] AS place, (verdicts[d.job]).parked_on
        FROM unnest(demands) d
        OFFSET 0) d
      WHERE d.parked_on > 0
        AND d.key <> d.parked_on
        AND (d.place).is_locked
        AND NOT ((d.place).is_ordered AND d.id <> (d.place).head)
        AND left_places[d.key] > 0);
    IF cardinality(moved_keys) > 0 THEN PERFORM _unpark_places(moved_keys, t); END IF;
  END IF;
END $$;

-- Writes which lane each key has served last.
CREATE OR REPLACE FUNCTION _write_lanes_served(
  demands key_demand[],
  places key_place[],
  verdicts verdict[]
)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
BEGIN
  UPDATE limit_states s
  SET lane_cursor = coalesce(x.lane, s.lane_cursor, 0)
  FROM (
    SELECT
      (places[d.key]).key AS key,
      (array_agg(d.lane ORDER BY d.job DESC)
        FILTER (WHERE (verdicts[d.job]).may_start AND d.lane > 0))[1] AS lane
    FROM unnest(demands) d
    WHERE (places[d.key]).is_locked
      AND d.lane <> 0
    GROUP BY d.key) x
  WHERE s.key = x.key
    AND s.lane_cursor IS DISTINCT FROM coalesce(x.lane, s.lane_cursor, 0);
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

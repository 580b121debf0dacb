-- Counts unfinished jobs by queue, state and what they wait for. That is the column `wait` of jobs,
-- or `paused` for ready jobs of a paused queue, or `unmatched` for ready jobs with labels that no
-- live node has. Also counts jobs that have finished in the last `since`; all finished jobs if that
-- is NULL. Up to `cap` rows of a table are counted. Above that the counts are estimates from a
-- sample of pages, and `estimated` is true, because counting ten million rows takes seconds.
-- Running jobs, and queues with few ready jobs, are always counted.
CREATE OR REPLACE FUNCTION stats(
  cap int DEFAULT 100000,
  since interval DEFAULT '1 hour',
  now timestamptz DEFAULT NULL
)
RETURNS TABLE (
  queue text,
  state text,
  wait text,
  count bigint,
  oldest timestamptz,
  estimated boolean
)
LANGUAGE plpgsql STABLE AS $$
DECLARE
  t timestamptz := _clock(now);
  first timestamptz := coalesce(t - since, '-infinity');
BEGIN
  IF (SELECT count(*) FROM (SELECT FROM jobs LIMIT cap + 1) x) <= cap THEN
    RETURN QUERY
      SELECT
        x.queue,
        x.state,
        _describe_stats_wait(x.state, x.wait, p.wait, x.queue, x.lane),
        sum(x.count)::bigint,
        min(x.oldest),
        false
      FROM (
        SELECT
          j.queue,
          _job_state(j.fence, j.wait, j.failed, j.wait_key) AS state,
          j.wait,
          least(j.lane, 0) AS lane,
          count(*) AS count,
          min(j.run_at) AS oldest
        FROM jobs j
        GROUP BY 1, 2, 3, 4) x
      LEFT JOIN _list_paused_queues() p USING (queue)
      GROUP BY 1, 2, 3;
  ELSE
    RETURN QUERY
      SELECT
        e.queue,
        e.state,
        _describe_stats_wait(e.state, e.wait, p.wait, e.queue, e.lane),
        sum(e.count)::bigint,
        min(e.oldest),
        bool_or(e.estimated)
      FROM _estimate_unfinished_jobs() e
      LEFT JOIN _list_paused_queues() p USING (queue)
      GROUP BY 1, 2, 3;
  END IF;
  IF (
    SELECT count(*)
    FROM (
      SELECT
      FROM finished_jobs f
      WHERE f.finished_at > first
      LIMIT cap + 1) x) <= cap THEN
    RETURN QUERY
      SELECT f.queue, f.state, NULL, count(*), min(f.finished_at), false
      FROM finished_jobs f
      WHERE f.finished_at > first
      GROUP BY 1, 2;
  ELSE
    RETURN QUERY SELECT * FROM _estimate_finished_jobs(first);
  END IF;
END $$;

-- Returns what jobs of this state, queue and lane wait for, in the words of stats(). `pause` is the
-- word that _list_paused_queues() gives for the queue; NULL if the queue is not paused.
CREATE OR REPLACE FUNCTION _describe_stats_wait(
  state text, wait text, pause text, queue text, lane int
)
RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
RETURN CASE
    WHEN state IN ('running', 'suspended') THEN NULL
    ELSE coalesce(wait, pause, CASE WHEN _is_lane_unmatched(queue, lane) THEN 'unmatched' END)
  END;

-- Lists the queues that are paused for all types of jobs, with the word for what their jobs wait
-- for.
CREATE OR REPLACE FUNCTION _list_paused_queues()
RETURNS TABLE (queue text, wait text)
LANGUAGE sql STABLE AS $$
  SELECT p.queue, 'paused' FROM pauses p WHERE p.type IS NULL
$$;

-- Returns how many percent of the pages of these tables make a sample of 2,000 pages.
CREATE OR REPLACE FUNCTION _compute_sample_percent(tables regclass[])
RETURNS real
LANGUAGE sql STABLE
SET search_path FROM CURRENT
RETURN (
  SELECT least(100, 200000.0 * current_setting('block_size')::int
    / greatest(sum(pg_relation_size(x)), 1))
  FROM unnest(tables) x);

-- Counts unfinished jobs without reading all of them: the ready jobs of each queue through the
-- index if there are at most 1,000, running jobs through their claims, and the rest as an estimate
-- from a sample of the pages.
CREATE OR REPLACE FUNCTION _estimate_unfinished_jobs()
RETURNS TABLE (
  queue text,
  state text,
  wait text,
  lane int, -- below 0: of jobs that ask for labels; 0: of all others
  count bigint,
  oldest timestamptz,
  estimated boolean
)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_column
DECLARE
  percent real := _compute_sample_percent(ARRAY['jobs'::regclass]);
BEGIN
  RETURN QUERY
    WITH small AS MATERIALIZED (
        SELECT q.queue, r.*
        FROM _list_ready_queues() q(queue)
        CROSS JOIN LATERAL (
          SELECT
            x.lane, count(*) AS count, min(x.run_at) AS oldest, sum(count(*)) OVER () AS total
          FROM (
            SELECT j.run_at, least(j.lane, 0) AS lane
            FROM jobs j
            WHERE j.queue = q.queue
              AND j.wait IS NULL
              AND j.fence = 0
              AND NOT j.failed
            LIMIT 1001) x
          GROUP BY x.lane) r
        WHERE r.total <= 1000),
      sampled AS (
        SELECT
          j.queue,
          _job_state(j.fence, j.wait, j.failed, j.wait_key) AS state,
          j.wait,
          least(j.lane, 0) AS lane,
          count(*) AS count,
          min(j.run_at) AS oldest
        FROM jobs j TABLESAMPLE SYSTEM (percent)
        WHERE j.fence = 0
        GROUP BY 1, 2, 3, 4)
    SELECT s.queue, 'queued', NULL, s.lane, s.count, s.oldest, false
    FROM small s
    UNION ALL
    SELECT s.queue, s.state, s.wait, s.lane, round(s.count * 100 / percent)::bigint, s.oldest, true
    FROM sampled s
    WHERE NOT (
      s.state = 'queued'
      AND s.wait IS NULL
      AND s.queue IN (SELECT x.queue FROM small x))
    UNION ALL
    SELECT j.queue, 'running', NULL, 0, count(*), min(j.run_at), false
    FROM claims c
    CROSS JOIN unnest(c.job_ids) held(id)
    JOIN jobs j ON j.id = held.id AND j.fence = c.fence
    GROUP BY 1;
END $$;

-- Lists the queues that have ready jobs. Reads one index entry per queue, however many jobs wait.
CREATE OR REPLACE FUNCTION _list_ready_queues()
RETURNS SETOF text
LANGUAGE sql STABLE AS $$
  WITH RECURSIVE q AS (
    (
      SELECT j.queue
      FROM jobs j
      WHERE j.wait IS NULL
      ORDER BY j.queue
      LIMIT 1)
    UNION ALL
    SELECT (
      SELECT j.queue
      FROM jobs j
      WHERE j.queue > q.queue
        AND j.wait IS NULL
      ORDER BY j.queue
      LIMIT 1)
    FROM q
    WHERE q.queue IS NOT NULL)
  SELECT q.queue FROM q WHERE q.queue IS NOT NULL
$$;

-- Estimates how many jobs have finished since an instant, from a sample of the pages of these days.
CREATE OR REPLACE FUNCTION _estimate_finished_jobs(since timestamptz)
RETURNS TABLE (
  queue text,
  state text,
  wait text,
  count bigint,
  oldest timestamptz,
  estimated boolean
)
LANGUAGE plpgsql STABLE AS $$
DECLARE
  percent real := _compute_sample_percent(ARRAY(
    SELECT p.relid
    FROM pg_partition_tree('finished_jobs') p
    JOIN pg_class c ON c.oid = p.relid
    WHERE p.isleaf
      AND (
        c.relname LIKE '%\_default'
        OR right(c.relname, 8) >= to_char(since AT TIME ZONE 'UTC', 'YYYYMMDD'))));
BEGIN
  RETURN QUERY
    SELECT
      f.queue,
      f.state,
      NULL::text,
      round(count(*) * 100 / percent)::bigint,
      min(f.finished_at),
      true
    FROM finished_jobs f TABLESAMPLE SYSTEM (percent)
    WHERE f.finished_at > since
    GROUP BY 1, 2;
END $$;

-- Samples how many unfinished jobs there are, by queue (the 500 with most), by tenant (200) and in
-- all. Reads at most 2,000 pages of jobs: a smaller table is counted, of a larger one the figures
-- are estimates. Even then up to 100 ready jobs of each of 200 queues are counted in the index,
-- because the pages of a sample may miss them. What jobs wait for is found once for all jobs that
-- are alike: a type counts only if it is paused. Returns the seconds until the next step.
CREATE OR REPLACE FUNCTION _sample_backlog(t timestamptz)
RETURNS float8
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  percent real := _compute_sample_percent(ARRAY['jobs'::regclass]);
  paused_types text[] := ARRAY(SELECT DISTINCT p.type FROM pauses p WHERE p.type IS NOT NULL);
  last timestamptz := (SELECT m.last_at FROM chore_marks m WHERE m.chore = 'samples');
  grain text := CASE
      WHEN last >= date_bin('1 minute', t, _figures_origin()) THEN 'ten_seconds'
      WHEN last >= date_bin('1 hour', t, _figures_origin()) THEN 'minute'
      ELSE 'hour'
    END;
BEGIN
  WITH small AS MATERIALIZED (
      SELECT r.*
      FROM (SELECT l.queue FROM _list_ready_queues() l(queue) LIMIT 200) q
      CROSS JOIN LATERAL (
        SELECT x.*, count(*) OVER () AS total
        FROM (
          SELECT j.queue, j.type, j.tenant, j.failed, least(j.lane, 0) AS lane, j.run_at
          FROM jobs j
          WHERE j.queue = q.queue
            AND j.wait IS NULL
            AND j.fence = 0
          LIMIT 101) x) r
      WHERE percent < 100
        AND r.total <= 100),
    kinds AS MATERIALIZED (
      SELECT
        x.queue, CASE WHEN x.type = ANY (paused_types) THEN x.type ELSE '' END AS type, x.tenant,
        x.is_running, coalesce(x.wait, '') AS wait, x.failed, x.lane, sum(x.weight) AS jobs,
        min(x.run_at) AS oldest
      FROM (
        SELECT
          j.queue, j.type, j.tenant, j.fence <> 0, j.wait, j.failed, least(j.lane, 0), j.run_at,
          100 / percent
        FROM jobs j TABLESAMPLE SYSTEM (percent)
        WHERE percent = 100
          OR j.fence <> 0
          OR j.wait IS NOT NULL
          OR j.queue NOT IN (SELECT s.queue FROM small s)
        UNION ALL
        SELECT s.queue, s.type, s.tenant, false, NULL, s.failed, s.lane, s.run_at, 1
        FROM small s) x(queue, type, tenant, is_running, wait, failed, lane, run_at, weight)
      GROUP BY 1, 2, 3, 4, 5, 6, 7),
    descriptions AS MATERIALIZED (
      SELECT
        k.queue, k.type, k.wait, k.failed, k.lane,
        CASE k.wait
          WHEN 'blocked' THEN 'blocked'
          -- A suspended job counts as scheduled.
          WHEN 'waiting' THEN 'scheduled'
          ELSE _describe_job_wait(
            0, nullif(k.wait, ''), k.failed, k.queue, k.type, k.lane, NULL)
        END AS word
      FROM kinds k
      GROUP BY 1, 2, 3, 4, 5),
    words AS MATERIALIZED (
      SELECT
        k.queue, k.tenant, k.jobs, k.oldest,
        CASE WHEN k.is_running THEN 'running' ELSE d.word END AS word
      FROM kinds k
      JOIN descriptions d USING (queue, type, wait, failed, lane)),
    sums AS (
      SELECT
        CASE GROUPING(w.queue, w.tenant) WHEN 1 THEN 'queue' WHEN 2 THEN 'tenant' ELSE 'all' END
          AS dimension,
        coalesce(w.queue, w.tenant, '') AS name,
        w.tenant,
        row_number() OVER (PARTITION BY GROUPING(w.queue, w.tenant) ORDER BY sum(w.jobs) DESC)
          AS place,
        sum(w.jobs) FILTER (WHERE w.word = 'running') AS running,
        sum(w.jobs) FILTER (WHERE w.word = 'ready') AS ready,
        sum(w.jobs) FILTER (WHERE w.word = 'scheduled') AS scheduled,
        sum(w.jobs) FILTER (WHERE w.word = 'retrying') AS retrying,
        sum(w.jobs) FILTER (WHERE w.word = 'limited') AS limited,
        sum(w.jobs) FILTER (WHERE w.word = 'paused') AS paused,
        sum(w.jobs) FILTER (WHERE w.word = 'unsupported') AS unsupported,
        sum(w.jobs) FILTER (WHERE w.word = 'unmatched') AS unmatched,
        sum(w.jobs) FILTER (WHERE w.word = 'blocked') AS blocked,
        min(w.oldest) FILTER (WHERE w.word = 'ready') AS oldest
      FROM words w
      GROUP BY GROUPING SETS ((w.queue), (w.tenant), ()))
  INSERT INTO samples (
    grain, dimension, at, name, tenant, running, ready, scheduled, retrying, limited, paused,
    unsupported, unmatched, blocked, oldest, is_estimate)
  SELECT
    grain, s.dimension, t, s.name, s.tenant, coalesce(s.running, 0), coalesce(s.ready, 0),
    coalesce(s.scheduled, 0), coalesce(s.retrying, 0), coalesce(s.limited, 0),
    coalesce(s.paused, 0), coalesce(s.unsupported, 0), coalesce(s.unmatched, 0),
    coalesce(s.blocked, 0), s.oldest, percent < 100
  FROM sums s
  WHERE s.place <= CASE s.dimension WHEN 'tenant' THEN 200 ELSE 500 END
  ON CONFLICT DO NOTHING;
  RETURN _figures_pause();
END $$;

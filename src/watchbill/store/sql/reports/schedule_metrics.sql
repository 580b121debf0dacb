-- Counts how the runs of a schedule ended, for slots that are still in the history: those since
-- `since`, and of these the latest `max`, if given. Runs that have not ended or were canceled do
-- not count. A run that its handler skipped counts as a success. `success_rate` is in percent; the
-- rate and the durations are NULL if there are no runs. Returns no row if there is no such
-- schedule.
CREATE OR REPLACE FUNCTION schedule_metrics(
  name text,
  since timestamptz DEFAULT NULL,
  tenant text DEFAULT _session_tenant(),
  max int DEFAULT NULL
)
RETURNS TABLE (
  runs bigint,
  success_rate float8,
  average interval,
  shortest interval,
  longest interval,
  p95 interval,
  health text
)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  schedule_id bigint := (
    SELECT s.id
    FROM schedules s
    WHERE s.name = name
      AND s.tenant = tenant);
BEGIN
  IF schedule_id IS NULL THEN RETURN; END IF;
  RETURN QUERY
  SELECT
    m.runs, round(m.rate::numeric, 2)::float8, m.average, m.shortest, m.longest, m.p95,
    _describe_success_rate(m.rate)
  FROM (
    SELECT
      count(*) AS runs,
      100.0 * count(*) FILTER (WHERE l.outcome IN ('succeeded', 'skipped')) / nullif(count(*), 0)
        AS rate,
      avg(l.duration) AS average,
      min(l.duration) AS shortest,
      max(l.duration) AS longest,
      percentile_cont(0.95) WITHIN GROUP (ORDER BY l.duration) AS p95
    FROM (
      SELECT x.outcome, x.finished_at - x.started_at AS duration, x.job_id
      FROM slots x
      WHERE x.schedule_id = schedule_id
        AND x.slot >= coalesce(since, '-infinity')
      ORDER BY x.slot DESC
      LIMIT max) l
    WHERE l.job_id IS NOT NULL
      AND l.outcome IN ('succeeded', 'skipped', 'failed', 'timed_out', 'lost')) m;
END $$;

-- Returns the word for a success rate in percent, such as healthy.
CREATE OR REPLACE FUNCTION _describe_success_rate(rate numeric)
RETURNS text
LANGUAGE sql STABLE
RETURN CASE
  WHEN rate IS NULL THEN 'unknown'
  WHEN rate >= 95 THEN 'healthy'
  WHEN rate >= 80 THEN 'warning'
  ELSE 'unhealthy'
END;

-- Shows all jobs, those that run next first, with the average duration of successful runs in the
-- last seven days.
CREATE OR REPLACE FUNCTION @facade@.@prefix@get_job_status()
RETURNS TABLE (
  job_id int,
  job_name varchar,
  last_run timestamptz,
  next_run timestamptz,
  success_rate numeric,
  avg_duration_ms numeric,
  status text
)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  t timestamptz := _clock();
BEGIN
  RETURN QUERY
    SELECT
      j.id,
      j.name,
      j.last_run,
      j.next_run,
      CASE
        WHEN j.run_count > 0 THEN round(j.success_count * 100.0 / j.run_count, 2)
        ELSE 0
      END,
      (
        SELECT round(avg(extract(epoch FROM l.finished_at - l.started_at)) * 1000, 3)
        FROM slots l
        WHERE l.schedule_id = j.id
          AND l.outcome = 'succeeded'
          AND l.slot > t - interval '7 days'),
      CASE
        WHEN NOT j.enabled THEN 'DISABLED'
        WHEN j.next_run IS NULL THEN 'NOT_SCHEDULED'
        WHEN j.next_run <= t THEN 'DUE'
        WHEN j.last_error IS NOT NULL THEN 'ERROR'
        ELSE 'OK'
      END
    FROM @facade@.@prefix@scheduled_jobs j
    ORDER BY j.next_run NULLS LAST, j.id;
END $$;

CREATE OR REPLACE FUNCTION @facade@.@prefix@get_failed_jobs(days int DEFAULT 1)
RETURNS TABLE (
  job_id int,
  job_name varchar,
  error_count int,
  last_error text,
  last_error_at timestamptz
)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_variable
BEGIN
  RETURN QUERY
    SELECT j.id, j.name, j.error_count, j.last_error, j.last_error_at
    FROM @facade@.@prefix@scheduled_jobs j
    WHERE j.enabled
      AND j.error_count > 0
      AND j.last_error_at > _clock() - make_interval(days => days)
    ORDER BY j.error_count DESC, j.last_error_at DESC;
END $$;

-- Counts the runs of a job that are still in the history, with the durations of the successful
-- ones. A run is an attempt that has ended: a row of the history that is not SKIPPED. So the
-- success rate is that of get_job_status(), except for what was removed from the history.
CREATE OR REPLACE FUNCTION @facade@.@prefix@get_job_metrics(p_job_id int)
RETURNS TABLE (metric varchar, value numeric)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  s schedules := @facade@.@prefix@_jcron_job(p_job_id);
BEGIN
  RETURN QUERY
    SELECT x.metric::varchar, x.value
    FROM (
      SELECT
        count(*)::numeric AS total,
        round(100.0 * count(*) FILTER (WHERE r.succeeded) / nullif(count(*), 0), 2) AS rate,
        round(avg(r.ms) FILTER (WHERE r.succeeded), 3) AS average,
        max(r.ms) FILTER (WHERE r.succeeded) AS longest,
        min(r.ms) FILTER (WHERE r.succeeded) AS shortest
      FROM (
        SELECT
          l.outcome IN ('succeeded', 'fired') AS succeeded,
          round(extract(epoch FROM l.finished_at - l.started_at) * 1000, 3) AS ms
        FROM slots l
        WHERE l.schedule_id = s.id
          AND l.outcome IN ('succeeded', 'fired', 'failed', 'timed_out', 'lost')
        UNION ALL
        -- Few slots have more than one attempt, and an index finds them.
        SELECT false, NULL
        FROM slots l
        JOIN attempts a ON a.job_id = l.job_id AND a.ended_at IS DISTINCT FROM l.finished_at
        WHERE l.schedule_id = s.id
          AND (l.outcome IS NULL OR l.failed_attempts > 0)
          AND a.outcome IN ('failed', 'timed_out', 'lost')) r) m
    CROSS JOIN LATERAL (
      VALUES
        (1, 'total_runs', m.total),
        (2, 'success_rate', m.rate),
        (3, 'avg_duration_ms', m.average),
        (4, 'max_duration_ms', m.longest),
        (5, 'min_duration_ms', m.shortest)) x(place, metric, value)
    ORDER BY x.place;
END $$;

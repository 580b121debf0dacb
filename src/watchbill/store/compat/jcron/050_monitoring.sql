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
#variable_conflict use_column
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

-- Counts how the runs of a job ended that are still in the history, as schedule_metrics() does,
-- with the durations of its successful runs.
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
    FROM schedule_metrics(s.name, tenant => s.tenant) m
    CROSS JOIN (
      SELECT
        round(avg(d.ms), 3) AS average,
        max(d.ms) AS longest,
        min(d.ms) AS shortest
      FROM (
        SELECT round(extract(epoch FROM l.finished_at - l.started_at) * 1000, 3) AS ms
        FROM slots l
        WHERE l.schedule_id = s.id
          AND l.outcome = 'succeeded') d) d
    CROSS JOIN LATERAL (
      VALUES
        (1, 'total_runs', m.runs::numeric),
        (2, 'success_rate', m.success_rate::numeric),
        (3, 'avg_duration_ms', d.average),
        (4, 'max_duration_ms', d.longest),
        (5, 'min_duration_ms', d.shortest)) x(place, metric, value)
    ORDER BY x.place;
END $$;

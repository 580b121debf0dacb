-- after: job_by_id
-- The log lines of the runs of a job, in their order: of those whose lines are stored, and of the
-- current one if somebody watches it; then `ended_at` is NULL.
CREATE OR REPLACE FUNCTION job_log(id uuid)
RETURNS TABLE (run int, ended_at timestamptz, lines text[])
LANGUAGE sql STABLE AS $$
  WITH named AS MATERIALIZED (SELECT n.tenant FROM _named_job(job_log.id) n)
  SELECT l.run, l.ended_at, l.lines
  FROM named n
  JOIN job_logs l
    ON l.job_id = job_log.id
      AND l.tenant = n.tenant
      AND l.ended_at >= _history_start(job_log.id)
  UNION ALL
  SELECT j.run, NULL, r.lines
  FROM named n
  JOIN jobs j ON j.id = job_log.id AND j.tenant = n.tenant
  JOIN runs r ON r.job_id = j.id AND r.fence = j.fence
  WHERE r.lines IS NOT NULL
  ORDER BY 1
$$;

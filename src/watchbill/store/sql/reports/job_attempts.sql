-- after: views
-- Lists the attempts of one job, in the order of its runs.
CREATE OR REPLACE FUNCTION job_attempts(id uuid)
RETURNS SETOF attempt
LANGUAGE sql STABLE
AS $$
  SELECT *
  FROM attempt a
  WHERE a.job_id = job_attempts.id
    AND a.ended_at >= _history_start(job_attempts.id)
  ORDER BY a.run
$$;

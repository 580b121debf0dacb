-- after: views
-- Lists the attempts of the job that _named_job() finds, in the order of its runs.
CREATE OR REPLACE FUNCTION job_attempts(id uuid)
RETURNS SETOF attempt
LANGUAGE sql STABLE AS $$
  SELECT *
  FROM attempt a
  WHERE a.job_id = job_attempts.id
    AND a.ended_at >= _history_start(job_attempts.id)
    AND a.tenant = (SELECT n.tenant FROM _named_job(job_attempts.id) n)
  ORDER BY a.run
$$;

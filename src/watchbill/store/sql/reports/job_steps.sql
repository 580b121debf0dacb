-- after: steps_view
-- Lists the steps of the job that _named_job() finds, in the order in which they were stored.
CREATE OR REPLACE FUNCTION job_steps(id uuid)
RETURNS SETOF step
LANGUAGE sql STABLE AS $$
  SELECT *
  FROM step s
  WHERE s.job_id = job_steps.id
    AND s.tenant = (SELECT n.tenant FROM _named_job(job_steps.id) n)
  ORDER BY s.seq
$$;

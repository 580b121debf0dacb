-- Finds the job that an id names. Jobs of two tenants may have the same id, because a producer can
-- give a job of its own the id of a finished job that it does not see. Then a caller that sees both
-- means the unfinished one, and of finished ones the first: the other has taken its id. No two jobs
-- have the same number. Both results are NULL if there is no such job.
CREATE OR REPLACE FUNCTION _named_job(id uuid, OUT seq bigint, OUT tenant text)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
BEGIN
  SELECT j.seq, j.tenant INTO seq, tenant FROM jobs j WHERE j.id = id;
  IF FOUND THEN RETURN; END IF;
  SELECT f.seq, f.tenant
  INTO seq, tenant
  FROM finished_jobs f
  WHERE f.id = id
    AND f.finished_at >= _history_start(id)
  ORDER BY f.seq
  LIMIT 1;
END $$;

-- The sequence number of the job that _named_job() finds; NULL if there is no such job.
CREATE OR REPLACE FUNCTION _job_seq(id uuid)
RETURNS bigint
LANGUAGE sql STABLE
AS $$ SELECT n.seq FROM _named_job(_job_seq.id) n $$;

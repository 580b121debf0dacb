-- after: views
-- Returns the job that _named_job() finds. Reads only the table in which it is, through its index.
CREATE OR REPLACE FUNCTION job_by_id(id uuid)
RETURNS SETOF job
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
BEGIN
  IF EXISTS (SELECT FROM jobs j WHERE j.id = id) THEN
    RETURN QUERY SELECT * FROM job v WHERE v.id = id AND v.finished_at IS NULL;
  ELSE
    RETURN QUERY
      SELECT *
      FROM job v
      WHERE v.id = id
        AND v.finished_at >= _history_start(id)
      ORDER BY v.seq
      LIMIT 1;
  END IF;
END $$;

-- Returns the job with this id and this sequence number, as job_by_id(). Jobs of two tenants may
-- have the same id, but no two jobs have the same number.
CREATE OR REPLACE FUNCTION _job_by_seq(id uuid, seq bigint)
RETURNS SETOF job
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
BEGIN
  IF EXISTS (SELECT FROM jobs j WHERE j.id = id AND j.seq = seq) THEN
    RETURN QUERY SELECT * FROM job v WHERE v.id = id AND v.finished_at IS NULL;
  ELSE
    RETURN QUERY
      SELECT *
      FROM job v
      WHERE v.id = id
        AND v.seq = seq
        AND v.finished_at >= _history_start(id);
  END IF;
END $$;

-- Returns how a job ended; no row if the job is unfinished. If jobs of two tenants have the id,
-- this is the first one, whose id the other has taken.
CREATE OR REPLACE FUNCTION _read_job_ending(id uuid)
RETURNS TABLE (state text, result jsonb, error jsonb)
LANGUAGE sql STABLE AS $$
  SELECT f.state, f.result, f.error
  FROM finished_jobs f
  WHERE f.id = _read_job_ending.id
    AND f.finished_at >= _history_start(_read_job_ending.id)
  ORDER BY f.seq
  LIMIT 1
$$;

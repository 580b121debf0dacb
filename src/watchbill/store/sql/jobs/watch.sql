-- Says that somebody looks at a job: so long, at most an hour, the node that runs it shows its
-- progress and its log lines each second, and keeps the lines of a run that ends meanwhile. Call it
-- again to look on. Returns whether there is such a job that has not ended. Removes looks that are
-- over, and those of the tenant that end first if there are more than 1,000: each node reads all
-- looks each second.
CREATE OR REPLACE FUNCTION watch(
  id uuid,
  duration interval DEFAULT '10 seconds',
  now timestamptz DEFAULT NULL
)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  tenant text;
BEGIN
  IF duration IS NULL OR duration <= interval '0' OR duration > interval '1 hour' THEN
    RAISE EXCEPTION 'duration % is invalid', coalesce(duration::text, 'NULL')
      USING ERRCODE = 'WB003', HINT = 'give more than 0 and at most an hour';
  END IF;
  SELECT j.tenant INTO tenant FROM jobs j WHERE j.id = id;
  IF NOT FOUND THEN RETURN false; END IF;
  DELETE FROM watches w
  WHERE w.ctid = ANY (ARRAY(
    SELECT x.ctid FROM watches x WHERE x.until < t LIMIT 100 FOR UPDATE SKIP LOCKED));
  DELETE FROM watches w
  WHERE w.ctid = ANY (ARRAY(
    SELECT x.ctid
    FROM watches x
    WHERE x.ctid = ANY (ARRAY(
        SELECT y.ctid
        FROM watches y
        WHERE y.tenant = tenant
          AND y.job_id <> id
        ORDER BY y.until DESC
        OFFSET 999))
    FOR UPDATE SKIP LOCKED));
  INSERT INTO watches AS w (job_id, tenant, until)
  VALUES (id, tenant, t + duration)
  ON CONFLICT ON CONSTRAINT watches_pkey DO UPDATE
  SET until = greatest(w.until, EXCLUDED.until);
  RETURN true;
END $$;

-- Which of these jobs somebody looks at.
CREATE OR REPLACE FUNCTION _watched_jobs(ids uuid[], now timestamptz DEFAULT NULL)
RETURNS SETOF uuid
LANGUAGE plpgsql STABLE
AS $$
DECLARE
  t timestamptz := _clock(now);
BEGIN
  RETURN QUERY
    -- Each node asks each second: it reads the few looks first, and not one index entry per job.
    WITH w AS MATERIALIZED (SELECT x.job_id FROM watches x WHERE x.until > t)
    SELECT w.job_id FROM w WHERE w.job_id = ANY (ids);
END $$;

-- Deletes the steps and signals of jobs that are no longer kept, behind the job `after`: retention
-- has dropped them. Looks at `max` jobs, and returns the last one, NULL at the end of the tables.
-- Skips locked rows.
CREATE OR REPLACE FUNCTION sweep_steps(after uuid DEFAULT NULL, max int DEFAULT 1000)
RETURNS uuid
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  checked uuid[];
BEGIN
  PERFORM _check_shared_change('sweep_steps');
  -- Reads one index entry of each table per job, however many rows it has.
  WITH RECURSIVE x(id, number) AS (
    SELECT _find_next_job_with_steps(after), 1
    UNION ALL
    SELECT _find_next_job_with_steps(x.id), x.number + 1
    FROM x
    WHERE x.number < max
      AND x.id IS NOT NULL)
  SELECT array_agg(x.id ORDER BY x.id) FILTER (WHERE x.id IS NOT NULL) INTO checked FROM x;
  DELETE FROM steps s
  WHERE s.ctid = ANY (ARRAY(
    SELECT g.ctid
    FROM steps g
    WHERE g.job_id = ANY (checked)
      AND NOT _is_job_kept(g.job_id, g.tenant)
    FOR UPDATE SKIP LOCKED));
  DELETE FROM signals s
  WHERE s.ctid = ANY (ARRAY(
    SELECT g.ctid
    FROM signals g
    WHERE g.job_id = ANY (checked)
      AND NOT _is_job_kept(g.job_id, g.tenant)
    FOR UPDATE SKIP LOCKED));
  DELETE FROM step_waits w
  WHERE w.job_id = ANY (checked)
    AND NOT EXISTS (SELECT FROM steps s WHERE s.job_id = w.job_id AND s.tenant = w.tenant);
  RETURN CASE WHEN cardinality(checked) = max THEN checked[max] END;
END $$;

-- Returns the first job behind `after` that has steps or signals.
CREATE OR REPLACE FUNCTION _find_next_job_with_steps(after uuid)
RETURNS uuid
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN least(
    (
      SELECT s.job_id
      FROM steps s
      WHERE after IS NULL
        OR s.job_id > after
      ORDER BY s.job_id
      LIMIT 1),
    (
      SELECT g.job_id
      FROM signals g
      WHERE after IS NULL
        OR g.job_id > after
      ORDER BY g.job_id
      LIMIT 1));
END $$;

-- Says whether the job is unfinished, or in the history.
CREATE OR REPLACE FUNCTION _is_job_kept(job_id uuid, tenant text)
RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
BEGIN
  RETURN EXISTS (SELECT FROM jobs j WHERE j.id = job_id AND j.tenant = tenant) OR EXISTS (
    SELECT
    FROM finished_jobs f
    WHERE f.id = job_id
      AND f.tenant = tenant
      AND f.finished_at >= _history_start(job_id));
END $$;

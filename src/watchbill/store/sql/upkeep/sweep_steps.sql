-- Deletes the steps of jobs that are no longer kept, behind the job `after`: retention has dropped
-- them. Looks at `max` jobs, and returns the last one, NULL at the end of the table. Skips locked
-- rows.
CREATE OR REPLACE FUNCTION sweep_steps(after uuid DEFAULT NULL, max int DEFAULT 1000)
RETURNS uuid
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  checked uuid[];
BEGIN
  PERFORM _check_shared_change('sweep_steps');
  -- Reads one index entry per job, however many steps it has.
  WITH RECURSIVE x(id, number) AS (
    (
      SELECT s.job_id, 1
      FROM steps s
      WHERE after IS NULL
        OR s.job_id > after
      ORDER BY s.job_id
      LIMIT 1)
    UNION ALL
    SELECT
      (
        SELECT s.job_id
        FROM steps s
        WHERE s.job_id > x.id
        ORDER BY s.job_id
        LIMIT 1),
      x.number + 1
    FROM x
    WHERE x.number < max
      AND x.id IS NOT NULL)
  SELECT array_agg(x.id ORDER BY x.id) FILTER (WHERE x.id IS NOT NULL) INTO checked FROM x;
  DELETE FROM steps s
  WHERE s.ctid = ANY (ARRAY(
    SELECT g.ctid
    FROM steps g
    WHERE g.job_id = ANY (checked)
      AND NOT EXISTS (SELECT FROM jobs j WHERE j.id = g.job_id AND j.tenant = g.tenant)
      AND NOT EXISTS (
        SELECT
        FROM finished_jobs f
        WHERE f.id = g.job_id
          AND f.tenant = g.tenant
          AND f.finished_at >= _history_start(g.job_id))
    FOR UPDATE SKIP LOCKED));
  RETURN CASE WHEN cardinality(checked) = max THEN checked[max] END;
END $$;

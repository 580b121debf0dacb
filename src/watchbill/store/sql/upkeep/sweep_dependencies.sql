-- Deletes the dependencies of children that are no longer stored, after the child `after`. Returns
-- the last child that it checked, NULL at the end of the table. Skips locked rows.
CREATE OR REPLACE FUNCTION sweep_dependencies(after uuid DEFAULT NULL, max int DEFAULT 1000)
RETURNS uuid
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  checked uuid[] := ARRAY(
    SELECT d.child
    FROM dependencies d
    WHERE after IS NULL
      OR d.child > after
    ORDER BY d.child
    LIMIT max);
  last uuid := checked[cardinality(checked)];
  -- Rows, because jobs of two tenants may have the id of a child.
  gone tid[] := ARRAY(
    SELECT d.ctid
    FROM (SELECT DISTINCT l FROM unnest(checked) l) x(child)
    JOIN dependencies d ON d.child = x.child
    WHERE NOT EXISTS (SELECT FROM jobs j WHERE j.id = d.child AND j.tenant = d.tenant)
      AND NOT EXISTS (
        SELECT
        FROM finished_jobs f
        WHERE f.id = d.child
          AND f.tenant = d.tenant
          AND f.finished_at >= _history_start(d.child)));
BEGIN
  PERFORM _check_shared_change('sweep_dependencies');
  DELETE FROM dependencies d
  WHERE d.ctid = ANY (ARRAY(
    SELECT g.ctid FROM dependencies g WHERE g.ctid = ANY (gone) FOR UPDATE SKIP LOCKED));
  RETURN CASE WHEN cardinality(checked) = max THEN last END;
END $$;

-- after: named_job
-- Lists the jobs that had to end before this job: its parents at depth 1, in the order of
-- depends_on, the parents of these at depth 2, and so on. A job that is no longer stored has no
-- type and no state.
CREATE OR REPLACE FUNCTION ancestors(
  id uuid,
  types text[] DEFAULT NULL,
  deepest int DEFAULT NULL
)
RETURNS TABLE (id uuid, depth int, type text, state text, result jsonb, error jsonb)
LANGUAGE sql STABLE
AS $$
  WITH RECURSIVE own AS MATERIALIZED (SELECT (_named_job(ancestors.id)).tenant),
    up(id, depth) AS (
      SELECT d.parent, 1
      FROM own
      JOIN dependencies d ON d.child = ancestors.id AND d.tenant = own.tenant
      UNION
      SELECT d.parent, up.depth + 1
      FROM own
      CROSS JOIN up
      JOIN dependencies d ON d.child = up.id AND d.tenant = own.tenant
      WHERE up.depth < coalesce(deepest, 1000000)),
    nearest AS (SELECT up.id, min(up.depth) AS depth FROM up GROUP BY 1)
  SELECT n.id, n.depth, p.type, p.state, p.result, p.error
  FROM own
  CROSS JOIN nearest n
  LEFT JOIN dependencies d
    ON d.child = ancestors.id AND d.parent = n.id AND d.tenant = own.tenant
  LEFT JOIN LATERAL (
    SELECT f.type, f.state, f.result, f.error
    FROM finished_jobs f
    WHERE f.id = n.id
      AND f.tenant = own.tenant
      AND f.finished_at >= _history_start(n.id)
    UNION ALL
    SELECT
      j.type,
      _job_state(j.fence, j.wait, j.failed, j.wait_key), NULL, NULL
    FROM jobs j
    WHERE j.id = n.id
      AND j.tenant = own.tenant) p ON true
  WHERE ancestors.types IS NULL
    OR p.type = ANY (ancestors.types)
  ORDER BY n.depth, d.place, n.id
$$;

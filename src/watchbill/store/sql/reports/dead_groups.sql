-- Counts dead jobs by type and error message, with the newest job of each group as an example.
CREATE OR REPLACE FUNCTION dead_groups(type text DEFAULT NULL, tenant text DEFAULT NULL)
RETURNS TABLE (
  type text,
  message text,
  count bigint,
  first timestamptz,
  last timestamptz,
  example uuid
)
LANGUAGE sql STABLE AS $$
  SELECT
    f.type, coalesce(f.error->>'message', ''), count(*), min(f.finished_at), max(f.finished_at),
    (array_agg(f.id ORDER BY f.finished_at DESC))[1]
  FROM finished_jobs f
  WHERE f.state = 'dead'
    AND (dead_groups.type IS NULL OR f.type = dead_groups.type)
    AND (dead_groups.tenant IS NULL OR f.tenant = dead_groups.tenant)
  GROUP BY 1, 2
  ORDER BY 3 DESC
  LIMIT 1000
$$;

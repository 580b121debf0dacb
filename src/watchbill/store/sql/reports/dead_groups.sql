-- Counts dead jobs by failure: type, class of the exception, and message without what differs from
-- job to job. Shows the newest job of each group as an example, with its message.
CREATE OR REPLACE FUNCTION dead_groups(type text DEFAULT NULL, tenant text DEFAULT NULL)
RETURNS TABLE (
  type text,
  message text,
  count bigint,
  first timestamptz,
  last timestamptz,
  example uuid,
  exception text,
  failure bigint
)
LANGUAGE sql STABLE AS $$
  SELECT
    g.type, coalesce(x.error->>'message', ''), g.count, g.first, g.last, g.example,
    x.error->>'type', g.failure
  FROM (
    SELECT
      f.type, coalesce(f.failure, _failure_of(f.type, f.error)) AS failure, count(*) AS count,
      min(f.finished_at) AS first, max(f.finished_at) AS last,
      (array_agg(f.id ORDER BY f.finished_at DESC))[1] AS example
    FROM finished_jobs f
    WHERE f.state = 'dead'
      AND (dead_groups.type IS NULL OR f.type = dead_groups.type)
      AND (dead_groups.tenant IS NULL OR f.tenant = dead_groups.tenant)
    GROUP BY 1, 2
    ORDER BY 3 DESC
    LIMIT 1000) g
  CROSS JOIN LATERAL (
    SELECT e.error
    FROM finished_jobs e
    WHERE e.id = g.example
      AND e.finished_at = g.last
      AND e.state = 'dead'
    LIMIT 1) x
  ORDER BY g.count DESC
$$;

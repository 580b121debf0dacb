-- Lists what has ended since `since`, in steps: the runs and jobs of all, or of one queue, type or
-- tenant. Steps in which nothing ended have zeros. Steps of less than an hour are read from figures
-- of minutes (of types and tenants: ten minutes), which are kept for two days. Locks nothing.
CREATE OR REPLACE FUNCTION _list_endings(
  dimension text,
  name text,
  since timestamptz,
  step interval,
  now timestamptz DEFAULT NULL
)
RETURNS TABLE (
  at timestamptz,
  succeeded bigint,
  failed bigint,
  dead bigint,
  canceled bigint,
  ended bigint,
  run_seconds float8,
  wait_seconds float8
)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  stored text[] := CASE
      WHEN step >= interval '1 day' THEN '{day,hour}'::text[]
      WHEN step >= interval '1 hour' THEN '{hour}'
      WHEN dimension IN ('type', 'tenant') THEN '{ten_minutes}'
      ELSE '{minute}'
    END;
  t timestamptz := _clock(now);
BEGIN
  step := greatest(step, interval '1 minute');
  since := date_bin(step, greatest(since, t - 1000 * step), _figures_origin());
  RETURN QUERY
    WITH sums AS MATERIALIZED (
        SELECT
          date_bin(step, r.at, _figures_origin()) AS at,
          sum(r.succeeded + r.skipped)::bigint AS succeeded,
          sum(r.failed + r.timed_out + r.lost)::bigint AS failed,
          sum(r.dead)::bigint AS dead,
          sum(r.canceled)::bigint AS canceled,
          sum(r.succeeded + r.skipped + r.failed + r.timed_out + r.lost)::bigint AS ended,
          sum(r.run_seconds) AS run_seconds,
          sum(r.wait_seconds) AS wait_seconds
        FROM rollups r
        WHERE r.grain = ANY (stored)
          AND r.dimension = dimension
          AND r.at >= since
          AND r.name = name
        GROUP BY 1)
    SELECT
      g.at, coalesce(s.succeeded, 0), coalesce(s.failed, 0), coalesce(s.dead, 0),
      coalesce(s.canceled, 0), coalesce(s.ended, 0), coalesce(s.run_seconds, 0),
      coalesce(s.wait_seconds, 0)
    FROM generate_series(since, t, step) g(at)
    LEFT JOIN sums s ON s.at = g.at
    ORDER BY g.at;
END $$;

-- Lists how many runs and jobs have ended, by minute, hour or day: of all, or of each queue, type
-- or tenant (of types and tenants, ten minutes stand for `minute`). A caller that sees one tenant
-- gets the figures of that tenant only. Of the last hours the figures are as nodes have reported
-- them; `is_counted` says that they were counted from history. `lost` is known once the hour was
-- counted.
CREATE OR REPLACE FUNCTION figure_list(
  dimension text DEFAULT 'all',
  grain text DEFAULT 'hour',
  since timestamptz DEFAULT NULL,
  until timestamptz DEFAULT NULL,
  max int DEFAULT 10000,
  now timestamptz DEFAULT NULL
)
RETURNS TABLE (
  at timestamptz,
  name text,
  succeeded bigint,
  skipped bigint,
  failed bigint,
  timed_out bigint,
  lost bigint,
  snoozed bigint,
  dead bigint,
  canceled bigint,
  run_seconds float8,
  wait_seconds float8,
  is_counted boolean
)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  stored text := CASE
      WHEN grain = 'minute' AND dimension IN ('type', 'tenant') THEN 'ten_minutes'
      ELSE grain
    END;
BEGIN
  IF dimension NOT IN ('all', 'queue', 'type', 'tenant') THEN
    RAISE EXCEPTION 'dimension % is invalid', quote_literal(dimension)
      USING ERRCODE = 'WB003', HINT = 'the dimensions are all, queue, type, tenant';
  ELSIF grain NOT IN ('minute', 'hour', 'day') THEN
    RAISE EXCEPTION 'grain % is invalid', quote_literal(grain)
      USING ERRCODE = 'WB003', HINT = 'the grains are minute, hour, day';
  END IF;
  since := coalesce(
    since,
    t - CASE grain
      WHEN 'minute' THEN interval '1 hour'
      WHEN 'hour' THEN interval '1 day'
      ELSE interval '30 days'
    END);
  since := date_bin(
    CASE stored
      WHEN 'minute' THEN interval '1 minute'
      WHEN 'ten_minutes' THEN interval '10 minutes'
      WHEN 'hour' THEN interval '1 hour'
      ELSE interval '1 day'
    END,
    since, _figures_origin());
  RETURN QUERY
    SELECT
      CASE grain WHEN 'day' THEN date_bin('1 day', r.at, _figures_origin()) ELSE r.at END, r.name,
      sum(r.succeeded)::bigint, sum(r.skipped)::bigint, sum(r.failed)::bigint,
      sum(r.timed_out)::bigint, sum(r.lost)::bigint, sum(r.snoozed)::bigint, sum(r.dead)::bigint,
      sum(r.canceled)::bigint, sum(r.run_seconds), sum(r.wait_seconds), bool_and(r.is_counted)
    FROM rollups r
    -- Hours of the last 90 days are not days yet.
    WHERE (r.grain = stored OR grain = 'day' AND r.grain = 'hour')
      AND r.dimension = dimension
      AND r.at >= since
      AND (until IS NULL OR r.at < until)
    GROUP BY 1, 2
    ORDER BY 1, 2
    LIMIT max;
END $$;

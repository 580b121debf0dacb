-- after: alert_finding
-- Finds limits that are full while jobs wait for them, ordered keys that a dead job keeps, and
-- tenants that have nearly used a quota. Looks at the first 200 keys for which jobs wait, with one
-- index entry for each.
CREATE OR REPLACE FUNCTION _find_limit_alerts(t timestamptz)
RETURNS SETOF alert_finding
LANGUAGE plpgsql STABLE AS $$
DECLARE
  keys text[] := _list_awaited_keys(200);
BEGIN
  RETURN QUERY
    SELECT
      'limit_saturated', x.name, NULL::text, NULL::float8, NULL::float8,
      format('limit %s is full, and jobs wait for it', x.name), '{}'::jsonb
    FROM (
      SELECT DISTINCT _limit_name(k) AS name FROM unnest(keys) k WHERE NOT _is_order_key(k)) x;
  RETURN QUERY
    SELECT
      'order_stuck', k, f.tenant, NULL::float8, NULL::float8,
      format('job %s of type %s is dead and keeps the ordered key %s', f.id, f.type, k), '{}'::jsonb
    FROM unnest(keys) k
    CROSS JOIN LATERAL (
      SELECT h.job_id
      FROM holds h
      WHERE h.key = k
        AND NOT EXISTS (SELECT FROM jobs j WHERE j.id = h.job_id)
      LIMIT 1) h
    CROSS JOIN LATERAL (SELECT * FROM job_by_id(h.job_id)) f
    WHERE _is_order_key(k);
  RETURN QUERY
    SELECT
      'quota', q.tenant, q.tenant, max(u.percent)::float8, NULL::float8,
      format(
        'tenant %s uses %s percent of its quota of %s', q.tenant, round(max(u.percent)::numeric),
        (array_agg(u.kind ORDER BY u.percent DESC))[1]),
      '{}'::jsonb
    FROM (SELECT * FROM tenants x ORDER BY x.tenant LIMIT 1000) q
    LEFT JOIN quota_usage g ON g.tenant = q.tenant
    CROSS JOIN LATERAL (
      VALUES
        ('unfinished jobs', 100.0 * g.unfinished / nullif(q.max_unfinished, 0)),
        ('payload bytes', 100.0 * g.payload_bytes / nullif(q.max_payload_bytes, 0)),
        (
          'jobs a minute',
          100.0 * (
            SELECT sum(s.jobs)
            FROM quota_seconds s
            WHERE s.tenant = q.tenant
              AND s.second > t - interval '1 minute')
          / nullif(q.max_per_minute, 0))) u(kind, percent)
    WHERE u.percent > 0
    GROUP BY q.tenant;
END $$;

-- Lists up to `max` limit keys for which jobs wait.
CREATE OR REPLACE FUNCTION _list_awaited_keys(max int)
RETURNS text[]
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  keys text[] := '{}';
  key text := '';
BEGIN
  WHILE cardinality(keys) < max LOOP
    key := (
      SELECT j.wait_key
      FROM jobs j
      WHERE j.wait = 'parked'
        AND j.wait_key > key
      ORDER BY j.wait_key
      LIMIT 1);
    EXIT WHEN key IS NULL;
    keys := keys || key;
  END LOOP;
  RETURN keys;
END $$;

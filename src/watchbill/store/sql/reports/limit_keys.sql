-- after: limit_list
-- The keys of a limit that jobs hold or wait for, or whose starts count for a rate: how many, since
-- when the longest, and when the rates allow the next start, if not now. `kept`: so many of the
-- holders do not run. They keep an ordered key, because they are dead or wait for their next
-- attempt. At most `max` keys. With row security only keys and counts of jobs that the caller sees:
-- a key contains what their payload says.
CREATE OR REPLACE FUNCTION limit_keys(
  name text,
  max int DEFAULT 50,
  now timestamptz DEFAULT NULL
)
RETURNS TABLE (
  key text,
  holders bigint,
  kept bigint,
  held_since timestamptz,
  waiters bigint,
  waiting_since timestamptz,
  next_at timestamptz
)
LANGUAGE sql STABLE AS $$
  SELECT k.key, h.n, h.kept, h.since, w.n, w.since, CASE WHEN f.at > c.now THEN f.at END
  FROM (
    SELECT u.key
    FROM (
      SELECT x.key
      FROM _limit_key_range(limit_keys.name) r
      JOIN holds x ON x.key = r.exact OR (x.key >= r.low AND x.key < r.high)
      UNION
      SELECT x.key
      FROM _limit_key_range(limit_keys.name) r
      JOIN limit_states x ON x.key = r.exact OR (x.key >= r.low AND x.key < r.high)) u
    WHERE _acts_for_all_tenants()
      OR EXISTS (SELECT FROM holds o WHERE o.key = u.key AND _job_seq(o.job_id) IS NOT NULL)
      OR EXISTS (SELECT FROM jobs j WHERE j.wait = 'parked' AND j.wait_key = u.key)
    ORDER BY u.key
    LIMIT limit_keys.max) k
  LEFT JOIN limit_states s ON s.key = k.key
  LEFT JOIN limits l ON l.name = s.name
  CROSS JOIN LATERAL _find_free_time(l.rates, s.windows, 1) f
  CROSS JOIN (SELECT _clock(limit_keys.now) AS now) c
  CROSS JOIN (SELECT _acts_for_all_tenants() AS all_tenants) a
  CROSS JOIN LATERAL (
    SELECT
      count(*) AS n,
      count(*) FILTER (WHERE _is_order_key(x.key) AND coalesce(j.fence, 0) = 0) AS kept,
      min(c.at) AS since
    FROM holds x
    LEFT JOIN jobs j ON j.id = x.job_id
    LEFT JOIN claims c ON c.fence = j.fence
    WHERE x.key = k.key
      AND (a.all_tenants OR _job_seq(x.job_id) IS NOT NULL)) h
  CROSS JOIN LATERAL (
    SELECT count(*) AS n, min(x.run_at) AS since
    FROM (
      SELECT j.run_at
      FROM jobs j
      WHERE j.wait = 'parked'
        AND j.wait_key = k.key
      LIMIT 10000) x) w
  WHERE (h.n > 0 OR w.n > 0 OR s.counts_until > c.now)
    AND (NOT _is_tenant_key(k.key) OR _sees_tenant(_key_tenant(k.key)))
  ORDER BY 1
$$;

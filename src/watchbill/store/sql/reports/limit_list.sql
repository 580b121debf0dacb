-- Which keys belong to a limit: the key `exact`, and those from `low` up to, but without, `high`.
-- Only named limits and ordered types have keys with values: the key of type `a:b` is not one of
-- type `a`.
CREATE OR REPLACE FUNCTION _limit_key_range(name text)
RETURNS TABLE (exact text, low text, high text)
LANGUAGE sql IMMUTABLE AS $$
  SELECT
    (p.prefix || name) COLLATE "C",
    (p.prefix || name || ':') COLLATE "C",
    (p.prefix || name || CASE WHEN name ~ '^(task|tenant|queue):' THEN ':' ELSE ';' END)
      COLLATE "C"
  FROM (SELECT CASE WHEN name ~ '^(task|tenant|order|queue):' THEN '' ELSE 'key:' END) p(prefix)
$$;

-- The limits, and how much they are used: `holders`, and `waiters`, which are counted up to 10,000.
-- `kept`: how many of the holders do not run. They keep ordered keys, because they are dead or wait
-- for their next attempt. `changed`: an operator has changed what the code declares. A queue with a
-- limit is queue:NAME; its waiters are not counted. A caller that acts for a tenant sees the shared
-- limits, and counts its own jobs only.
CREATE OR REPLACE FUNCTION limit_list()
RETURNS TABLE (
  name text,
  max int,
  rates jsonb,
  when_full text,
  when_dead text,
  owner text,
  changed boolean,
  holders bigint,
  kept bigint,
  waiters bigint
)
LANGUAGE sql STABLE AS $$
  SELECT
    l.name, l.max, _show_rates(l.rates), l.when_full, l.when_dead, l.owner,
    coalesce(_is_limit_changed(l), true),
    h.holders,
    h.kept,
    (
      SELECT count(*)
      FROM (
        SELECT
        FROM _limit_key_range(l.name) r
        JOIN jobs j
          ON j.wait = 'parked'
            AND (j.wait_key = r.exact OR (j.wait_key >= r.low AND j.wait_key < r.high))
        LIMIT 10000) w)
  FROM limits l
  CROSS JOIN (SELECT _acts_for_all_tenants() AS all_tenants) a
  CROSS JOIN LATERAL (
    SELECT
      count(*) AS holders,
      count(*) FILTER (
        WHERE _is_order_key(l.name)
          AND NOT EXISTS (SELECT FROM jobs j WHERE j.id = x.job_id AND j.fence <> 0)) AS kept
    FROM _limit_key_range(l.name) r
    JOIN holds x ON x.key = r.exact OR (x.key >= r.low AND x.key < r.high)
    WHERE a.all_tenants
      OR _job_seq(x.job_id) IS NOT NULL) h
  WHERE CASE
      WHEN _is_tenant_key(l.name) THEN _sees_tenant(_key_tenant(l.name))
      WHEN starts_with(l.name, 'endpoint/') THEN
        a.all_tenants
        OR starts_with(l.name, _endpoint_limit(current_tenant(), ''))
      ELSE true
    END
  UNION ALL
  SELECT
    _queue_key(q.name), q.max, NULL, NULL, NULL, q.owner,
    q.max IS DISTINCT FROM (q.declared->>'max')::int,
    (
      SELECT count(*)
      FROM holds h
      WHERE h.key = _queue_key(q.name)
        AND (a.all_tenants OR _job_seq(h.job_id) IS NOT NULL)),
    0,
    NULL
  FROM queues q
  CROSS JOIN (SELECT _acts_for_all_tenants() AS all_tenants) a
  WHERE q.max IS NOT NULL
    OR q.declared ? 'max'
  ORDER BY 1
$$;

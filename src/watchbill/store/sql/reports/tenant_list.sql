-- Lists the tenants that have quotas, unfinished jobs, schedules, roles or an erasure under way;
-- with `name`, only that tenant. Counts all unfinished jobs. `enqueued` counts the enqueues of the
-- last minute, for tenants with quotas. heartbeat_load() explains `expected_heartbeats`.
CREATE OR REPLACE FUNCTION tenant_list(name text DEFAULT NULL, now timestamptz DEFAULT NULL)
RETURNS TABLE (
  tenant text,
  running bigint,
  max_running int,
  unfinished bigint,
  max_unfinished bigint,
  payload_bytes bigint,
  max_payload_bytes bigint,
  enqueued bigint,
  max_per_minute bigint,
  expected_heartbeats numeric,
  heartbeat_budget real,
  over_budget boolean,
  schedules bigint,
  roles text[],
  erasing_since timestamptz
)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
BEGIN
  RETURN QUERY
    WITH job AS MATERIALIZED (
        SELECT
          j.tenant, count(*) AS unfinished, sum(_payload_size(j.payload, j.meta)) AS payload_bytes
        FROM jobs j
        WHERE name IS NULL OR j.tenant = name
        GROUP BY 1),
      schedule AS MATERIALIZED (
        SELECT s.tenant, count(*) AS schedules
        FROM schedules s
        WHERE name IS NULL OR s.tenant = name
        GROUP BY 1),
      role AS MATERIALIZED (
        SELECT b.tenant, array_agg(b.role::text ORDER BY b.role::text) AS roles
        FROM tenant_roles b
        WHERE (name IS NULL OR b.tenant = name)
          AND _sees_tenant(b.tenant)
        GROUP BY 1),
      load AS MATERIALIZED (SELECT * FROM heartbeat_load(NULL, now)),
      listed AS (
        SELECT x.tenant FROM job x
        UNION
        SELECT x.tenant FROM schedule x
        UNION
        SELECT x.tenant FROM role x
        UNION
        SELECT x.tenant FROM tenants x
        UNION
        SELECT x.tenant FROM erasures x)
    SELECT
      n.tenant, coalesce(h.running, 0),
      (SELECT l.max FROM limits l WHERE l.name = _tenant_key(n.tenant)),
      coalesce(j.unfinished, 0), q.max_unfinished, coalesce(j.payload_bytes, 0)::bigint,
      q.max_payload_bytes,
      CASE WHEN q.tenant IS NOT NULL THEN (_read_quota_usage(n.tenant, _clock())).enqueued END,
      q.max_per_minute, coalesce(h.expected_per_minute, 0), q.heartbeat_budget,
      coalesce(h.expected_per_minute > q.heartbeat_budget::numeric, false),
      coalesce(s.schedules, 0), coalesce(r.roles, '{}'), e.started_at
    FROM listed n
    LEFT JOIN job j ON j.tenant = n.tenant
    LEFT JOIN schedule s ON s.tenant = n.tenant
    LEFT JOIN role r ON r.tenant = n.tenant
    LEFT JOIN load h ON h.tenant = n.tenant
    LEFT JOIN tenants q ON q.tenant = n.tenant
    LEFT JOIN erasures e ON e.tenant = n.tenant
    WHERE name IS NULL OR n.tenant = name
    ORDER BY 1;
END $$;

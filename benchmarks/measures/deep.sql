-- Jobs of every kind, as many as asked for: 100 queues, 1,000 types, 10 priorities, a third in the future, a tenth blocked.
-- Each choice is made by chance and by itself, so neighbours in a queue lie far apart in the table, as they do in service.
INSERT INTO {schema}.jobs (id, created_at, run_at, wait, queue, type, priority, tenant, payload)
SELECT (lpad(to_hex((extract(epoch FROM n.created_at) * 1000)::bigint), 12, '0') || '7' || substr(md5(random()::text), 1, 3)
    || '8' || substr(md5(random()::text), 1, 15))::uuid,
  n.created_at, n.created_at + CASE WHEN n.kind < 1 / 3.0 THEN random() * interval '30 days' + interval '1 hour' ELSE interval '0' END,
  CASE WHEN n.kind < 1 / 3.0 THEN 'delayed' WHEN n.kind < 1 / 3.0 + 0.1 THEN 'blocked' END,
  'queue' || floor(random() * 100)::int, 'type' || floor(random() * 1000)::int, floor(random() * 10)::int, 'default', jsonb_build_object('number', n.number)
FROM (SELECT g AS number, clock_timestamp() - interval '30 minutes' + g / %(of)s::float8 * interval '30 minutes' AS created_at,
    coalesce(%(kind)s::float8, random()) AS kind
  FROM generate_series(%(first)s::bigint, %(first)s::bigint + %(count)s - 1) g) n

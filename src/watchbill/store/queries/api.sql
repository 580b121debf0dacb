-- These statements are sent by the HTTP API.

-- name: add_api_key
SELECT {schema}.add_api_key(
  %s::text, %s::bytea, %s::text, %s::text, %s::text, %s::text[], %s::text[], %s::float8,
  %s::timestamptz)

-- name: revoke_api_key
SELECT {schema}.revoke_api_key(%s::text)

-- name: api_keys
SELECT
  id, name, role, tenant, queues, types, rate, state, created_by, created_at, expires_at, used_at,
  revoked_at, revoked_by
FROM {schema}.api_key_list()

-- name: use_api_key
SELECT name, role, tenant, queues, types, rate
FROM {schema}._use_api_key(%s::text, %s::bytea)

-- name: save_filter
SELECT {schema}.save_filter(%s::text, %s::text, %s::text, %s::text)

-- name: saved_filters
SELECT id, page, name, query, created_by, created_at
FROM {schema}.saved_filter_list(%s::text, %s::text)

-- name: remove_filter
SELECT {schema}.remove_filter(%s::bigint, %s::text)

-- name: add_chart_mark
SELECT {schema}.add_chart_mark(%s::text, %s::timestamptz)

-- name: chart_marks
SELECT id, at, text, created_by
FROM {schema}.chart_mark_list(%s::timestamptz, %s::timestamptz)

-- name: remove_chart_mark
SELECT {schema}.remove_chart_mark(%s::bigint)

-- name: change_job
SELECT {schema}._change_job(%s::uuid, %s::int, %s::text)

-- name: schedule_name
SELECT s.name, s.tenant
FROM {schema}.schedules s
WHERE s.id = %s::bigint

-- name: api_node
-- Which key may use a node, and which living node has a name.
SELECT n.machine
FROM {schema}.nodes n
WHERE n.epoch = %(epoch)s::bigint
  OR n.name = %(name)s::text
  AND n.state IN ('active', 'draining')

-- name: api_register
SELECT {schema}.register(
  %(name)s::text, lease => make_interval(secs => %(lease)s::float8), app => %(app)s::text,
  types => %(types)s::jsonb, labels => %(labels)s::jsonb, instance => %(instance)s::uuid,
  queues => %(queues)s::text[], machine => %(machine)s::text, capacity => %(capacity)s::int,
  take_over => %(take_over)s::boolean)

-- name: api_reclaim
SELECT count(*) FROM {schema}.reclaim()

-- name: api_heartbeat
SELECT {schema}.heartbeat(%s::bigint, %s::jsonb, %s::bigint)

-- name: api_promote
SELECT extract(epoch FROM {schema}.promote() - {schema}._clock())::float8

-- name: api_claim
SELECT
  id, fence, type, payload, queue, tenant, priority, run_at, run, attempt, max_attempts, version,
  timeout, meta
FROM {schema}._claim_for_api(%s::bigint, %s::text[], %s::int, %s::int)

-- name: api_settle
SELECT id, state, run_at
FROM {schema}.settle(
  %s::bigint, %s::uuid[], %s::bigint[], %s::text[], %s::float8[],
  ARRAY(
    SELECT make_interval(secs => d.delay)
    FROM unnest(%s::float8[]) WITH ORDINALITY d(delay, n)
    ORDER BY d.n),
  results => %s::jsonb[], errors => %s::jsonb[])

-- name: events
-- What has happened since an instant, the newest `most` events in their order. `number` is how many
-- happened after `after`. Slots are found by the instant at which they were due, an hour back.
SELECT e.key, e.at, e.kind, e.about, e.number
FROM (
  SELECT x.*, count(*) FILTER (WHERE x.at > %(after)s::timestamptz) OVER () AS number
  FROM (
    SELECT
      'job ' || f.id || ' ' || f.run AS key, f.finished_at AS at,
      CASE f.state WHEN 'dead' THEN 'job_died' ELSE 'job_ended' END AS kind,
      jsonb_build_object(
        'id', f.id, 'type', f.type, 'queue', f.queue, 'tenant', f.tenant, 'state', f.state,
        'message', f.error->>'message') AS about
    FROM {schema}.finished_jobs f
    WHERE f.finished_at >= %(since)s::timestamptz
      AND f.queue = coalesce(%(queue)s::text, f.queue)
      AND f.type = coalesce(%(type)s::text, f.type)
    UNION ALL
    SELECT
      'run ' || a.job_id || ' ' || a.run, a.ended_at, 'job_failed',
      jsonb_build_object(
        'id', a.job_id, 'type', a.type, 'queue', a.queue, 'tenant', a.tenant, 'outcome', a.outcome,
        'message', a.error->>'message')
    FROM {schema}.attempts a
    WHERE a.ended_at >= %(since)s::timestamptz
      AND a.outcome IN ('failed', 'timed_out', 'lost')
      AND a.queue = coalesce(%(queue)s::text, a.queue)
      AND a.type = coalesce(%(type)s::text, a.type)
    UNION ALL
    SELECT
      o.kind || ' ' || l.id, o.at, o.kind,
      jsonb_build_object(
        'id', l.id, 'rule', l.rule, 'subject', l.subject, 'tenant', l.tenant,
        'severity', l.severity, 'message', l.reason)
    FROM {schema}.alert_list(%(since)s::timestamptz) l
    CROSS JOIN (
      VALUES ('alert_fired'), ('alert_cleared')) k(kind)
    CROSS JOIN LATERAL (
      SELECT
        k.kind,
        CASE k.kind WHEN 'alert_fired' THEN l.fired_at ELSE l.cleared_at END AS at) o
    WHERE o.at >= %(since)s::timestamptz
      AND %(queue)s::text IS NULL
      AND %(type)s::text IS NULL
    UNION ALL
    SELECT
      o.kind || ' ' || n.epoch, o.at, o.kind,
      jsonb_build_object('epoch', n.epoch::text, 'name', n.name, 'app', n.app)
    FROM {schema}.nodes n
    CROSS JOIN LATERAL (
      VALUES ('node_started', n.started_at), ('node_' || n.state, n.ended_at)) o(kind, at)
    WHERE o.at >= %(since)s::timestamptz
      AND %(queue)s::text IS NULL
      AND %(type)s::text IS NULL
    UNION ALL
    SELECT
      'slot ' || s.schedule_id || ' ' || s.slot || s.kind, s.fired_at,
      CASE WHEN s.outcome IN ('missed', 'skipped') THEN 'schedule_' || s.outcome
        ELSE 'schedule_fired'
      END,
      jsonb_build_object('schedule', c.name, 'tenant', c.tenant, 'slot', s.slot, 'job', s.job_id)
    FROM {schema}.slots s
    JOIN {schema}.schedules c ON c.id = s.schedule_id
    WHERE s.slot >= %(since)s::timestamptz - interval '1 hour'
      AND s.fired_at >= %(since)s::timestamptz
      AND c.queue = coalesce(%(queue)s::text, c.queue)
      AND c.type IS NOT DISTINCT FROM coalesce(%(type)s::text, c.type)) x
  ORDER BY x.at DESC
  LIMIT %(most)s::int) e
ORDER BY e.at

-- These statements are sent by the dashboard and the HTTP API.

-- name: web_facts
-- Returns what decides in whose name the dashboard acts: the names of the group roles, whether rows
-- are kept apart by tenants, and of which groups the login is a member.
SELECT
  i.role_prefix,
  (SELECT c.relrowsecurity FROM pg_class c WHERE c.oid = '{schema}.jobs'::regclass),
  session_user::text,
  ARRAY(
    SELECT k.kind
    FROM unnest('{{producer,worker,operator,reader}}'::text[]) k(kind)
    JOIN pg_roles g ON g.rolname = i.role_prefix || '_' || k.kind
    WHERE pg_has_role(session_user, g.oid, 'MEMBER'))
FROM {schema}.installation i

-- name: web_frame
SELECT
  p.now, p.nodes, p.queues, p.failures, p.operations,
  (
    SELECT count(*)
    FROM {schema}.alert_list(max => 1000) a
    WHERE a.state = 'firing'
      AND NOT a.is_silenced)
FROM {schema}._count_page_items() p

-- name: web_overdue
-- Slots that should have ended, the oldest first.
SELECT o.name, o.tenant, o.slot, o.due_by, o.overdue_at, o.job_id
FROM {schema}.overdue o
ORDER BY o.overdue_at
LIMIT %s::int

-- name: web_next_runs
-- Schedules that are due next.
SELECT s.name, s.tenant, t.next_run
FROM {schema}.timer t
JOIN {schema}.schedules s ON s.id = t.schedule_id
WHERE t.next_run IS NOT NULL
ORDER BY t.next_run
LIMIT %s::int

-- name: web_endings
SELECT at, succeeded, failed, dead, canceled, ended, run_seconds, wait_seconds
FROM {schema}._list_endings(%s::text, %s::text, %s::timestamptz, make_interval(secs => %s))

-- name: web_find
-- Things whose names contain a text: those whose name begins with it first.
SELECT f.kind, f.name, f.tenant
FROM (
  SELECT 'queue' AS kind, q.name, NULL::text AS tenant
  FROM (
    SELECT unnest(n.queues) FROM {schema}.nodes n WHERE n.state IN ('active', 'draining')
    UNION
    SELECT s.name FROM {schema}.sample_list('queue', now() - interval '2 minutes') s
    UNION
    SELECT p.queue FROM {schema}.pauses p WHERE p.queue IS NOT NULL) q(name)
  UNION
  SELECT 'type', t.type, NULL FROM {schema}.node_types t
  UNION
  SELECT 'node', n.name, NULL FROM {schema}.nodes n WHERE n.state IN ('active', 'draining')
  UNION
  SELECT 'schedule', s.name, s.tenant FROM {schema}.schedules s) f
WHERE position(lower(%(text)s::text) IN lower(f.name)) > 0
ORDER BY starts_with(lower(f.name), lower(%(text)s::text)) DESC, length(f.name), f.kind, f.name
LIMIT %(most)s::int

-- name: web_listed_jobs
SELECT id, seq, payload, size, failure, alike
FROM {schema}._list_page_jobs(%s::uuid[])

-- name: web_attempts
SELECT run, attempt, outcome, holder, started_at, ended_at, due_at, failure, error
FROM {schema}.job_attempts(%s::uuid)
ORDER BY run

-- name: web_alike
-- How many attempts have failed as the last one of this job; no row if it has no error.
SELECT p.failure, p.alike
FROM {schema}._list_page_jobs(ARRAY[%s::uuid], 0) p

-- name: web_failing_types
-- How many attempts of each type have failed, in steps from `since` on.
SELECT t.type, e.failed
FROM unnest(%s::text[]) t(type)
CROSS JOIN LATERAL {schema}._list_endings(
  'type', t.type, %s::timestamptz, make_interval(secs => %s)) e
ORDER BY t.type, e.at

-- name: web_states
SELECT j.id, j.state
FROM unnest(%s::uuid[]) x(id)
CROSS JOIN LATERAL {schema}.job_by_id(x.id) j
ORDER BY j.state DESC, j.id

-- name: web_slots
-- The last slots of each of these schedules, from the oldest to the newest.
SELECT
  l.schedule_id, l.slot, l.kind, l.until, l.count, l.outcome, l.reason, l.job_id, l.fired_at,
  l.started_at, l.finished_at, l.duration, l.error, NULL, l.node, l.host, l.due_by, l.overdue_at,
  l.attempt
FROM unnest(%s::bigint[]) s(id)
CROSS JOIN LATERAL (
  SELECT v.*
  FROM {schema}.slot v
  WHERE v.schedule_id = s.id
  ORDER BY v.slot DESC
  LIMIT %s::int) l
ORDER BY l.schedule_id, l.slot

-- name: web_slots_between
SELECT
  v.schedule_id, v.slot, v.kind, v.until, v.count, v.outcome, v.reason, v.job_id, v.fired_at,
  v.started_at, v.finished_at, v.duration, v.error, NULL, v.node, v.host, v.due_by, v.overdue_at,
  v.attempt
FROM {schema}.slot v
WHERE v.slot >= %s::timestamptz
  AND v.slot < %s::timestamptz
ORDER BY v.slot DESC
LIMIT %s::int

-- name: web_due
-- How many delayed jobs of a queue become due in each minute from `now` on, of the next `most` jobs
-- of all queues. `until` is the last of these, if there are more within the time; NULL otherwise.
-- The first row has no minute if the queue has none.
WITH next AS MATERIALIZED (
    SELECT j.queue, j.run_at
    FROM {schema}.jobs j
    WHERE j.wait = 'delayed'
      AND j.run_at > %(now)s::timestamptz
      AND j.run_at <= %(now)s::timestamptz + make_interval(mins => %(minutes)s)
    ORDER BY j.run_at
    LIMIT %(most)s::int),
  counted AS (
    SELECT
      (extract(epoch FROM n.run_at - %(now)s::timestamptz) / 60)::int AS minute, count(*) AS number
    FROM next n
    WHERE n.queue = %(queue)s::text
    GROUP BY 1)
SELECT c.minute, c.number, s.until
FROM (
  SELECT CASE WHEN count(*) = %(most)s::int THEN max(n.run_at) END AS until FROM next n) s
LEFT JOIN counted c ON true
ORDER BY c.minute

-- name: web_types
-- Types that live nodes handle, that wait for a node, that are paused or that a schedule uses: how
-- many live nodes handle each, which versions these know, its pause, and since when jobs wait for a
-- node that handles it. With `name`, only that type.
WITH live AS MATERIALIZED (
  SELECT t.epoch, t.type, t.version
  FROM {schema}.node_types t
  JOIN {schema}.nodes n ON n.epoch = t.epoch AND n.state IN ('active', 'draining')
  WHERE %(name)s::text IS NULL OR t.type = %(name)s::text)
SELECT
  k.type,
  (SELECT count(*) FROM live l WHERE l.type = k.type),
  ARRAY(SELECT DISTINCT l.version FROM live l WHERE l.type = k.type ORDER BY l.version),
  p.at, p.by, p.reason,
  (SELECT min(u.since) FROM {schema}.unsupported_types u WHERE u.type = k.type)
FROM (
  SELECT l.type FROM live l
  UNION
  SELECT u.type FROM {schema}.unsupported_types u
  UNION
  SELECT c.type FROM {schema}.schedules c WHERE c.type IS NOT NULL
  UNION
  SELECT q.type FROM {schema}.pauses q WHERE q.type IS NOT NULL AND q.queue IS NULL) k
LEFT JOIN {schema}.pauses p ON p.type = k.type AND p.queue IS NULL
WHERE %(name)s::text IS NULL OR k.type = %(name)s::text
ORDER BY k.type
LIMIT 5000

-- name: web_node_versions
SELECT n.epoch, n.watchbill_version FROM {schema}.nodes n WHERE n.epoch = ANY (%s::bigint[])

-- name: web_node_ends
SELECT n.epoch, n.ended_at
FROM {schema}.nodes n
WHERE n.epoch = ANY (%s::bigint[])
  AND n.ended_at IS NOT NULL

-- name: web_runs
-- Runs on these nodes: those that run now, and those that have ended since `since`, found by the
-- BRIN indexes of the time of the end.
(
  SELECT a.epoch, a.type, a.outcome, a.started_at, a.ended_at
  FROM {schema}.attempt a
  WHERE a.ended_at >= %(since)s::timestamptz
    AND a.epoch = ANY (%(epochs)s::bigint[])
    AND a.started_at IS NOT NULL
  LIMIT %(most)s::int)
UNION ALL
(
  SELECT r.epoch, j.type, NULL, coalesce(r.started_at, r.claimed_at), NULL
  FROM {schema}.running_job r
  JOIN {schema}.jobs j ON j.id = r.id
  WHERE r.epoch = ANY (%(epochs)s::bigint[])
  LIMIT %(running)s::int)

-- name: web_running_on
-- What a node runs, the longest first.
SELECT r.id, j.type, j.queue, j.tenant, coalesce(r.started_at, r.claimed_at) AS since
FROM {schema}.running_job r
JOIN {schema}.jobs j ON j.id = r.id
WHERE r.epoch = %s::bigint
ORDER BY since
LIMIT %s::int

-- name: web_chores
SELECT chore, last_at, due_at, took, error FROM {schema}._list_chores()

-- name: web_tables
-- The largest tables of the schema, with their partitions: bytes, and rows as of the last ANALYZE.
SELECT
  coalesce(p.relname, c.relname)::text,
  count(*),
  sum(pg_total_relation_size(c.oid))::bigint,
  sum(c.reltuples) FILTER (WHERE c.reltuples >= 0)::bigint
FROM pg_class c
LEFT JOIN LATERAL (
  SELECT r.relname FROM pg_class r WHERE c.relispartition AND r.oid = pg_partition_root(c.oid)) p
  ON true
WHERE c.relnamespace = '{schema}'::regnamespace
  AND c.relkind = 'r'
GROUP BY 1
ORDER BY 3 DESC
LIMIT 15

-- name: web_server
-- What the server is, and how full it is. Of sessions of other users the login may not see when
-- their transactions began.
SELECT
  current_setting('server_version'),
  current_database()::text,
  pg_database_size(current_database()),
  pg_postmaster_start_time(),
  (SELECT count(*) FROM pg_stat_activity a WHERE a.backend_type = 'client backend'),
  current_setting('max_connections')::int,
  (
    SELECT max(clock_timestamp() - a.xact_start)
    FROM pg_stat_activity a
    WHERE a.backend_type = 'client backend'
      AND a.pid <> pg_backend_pid()),
  pg_is_in_recovery()

-- name: web_partitions
-- How many days of partitions of history are ready, from today on.
SELECT p.relname::text, count(*)
FROM pg_class p
JOIN pg_inherits i ON i.inhparent = p.oid
JOIN pg_class c ON c.oid = i.inhrelid
WHERE p.relnamespace = '{schema}'::regnamespace
  AND p.relkind = 'p'
  AND c.relkind = 'r'
  AND substring(c.relname FROM '[0-9]{{8}}$') >= to_char(now(), 'YYYYMMDD')
GROUP BY 1
ORDER BY 1

-- name: web_schema_version
SELECT max(version) FROM {schema}.schema_version

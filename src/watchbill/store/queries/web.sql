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
SELECT now, nodes, queues, failures, operations FROM {schema}._count_page_items()

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

-- name: web_audit_of_job
-- What people did to a job, the newest first. Reads at most 20,000 rows since it was enqueued.
SELECT a.at, a.actor, a.action, a.detail
FROM (
  SELECT x.at, x.id, x.actor, x.action, x.subject, x.detail
  FROM {schema}.audit x
  WHERE x.at >= %s::timestamptz
  ORDER BY x.at DESC
  LIMIT 20000) a
WHERE a.subject = %s::text
ORDER BY a.at DESC, a.id DESC
LIMIT %s::int

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

-- name: web_audit_of_schedule
-- What people did to a schedule, the newest first, among the last 20,000 rows.
SELECT a.at, a.actor, a.action, a.detail
FROM (
  SELECT x.at, x.id, x.actor, x.action, x.subject, x.tenant, x.detail
  FROM {schema}.audit x
  ORDER BY x.at DESC
  LIMIT 20000) a
WHERE a.subject = %s::text
  AND (a.tenant = %s::text OR a.tenant IS NULL)
ORDER BY a.at DESC, a.id DESC
LIMIT %s::int

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

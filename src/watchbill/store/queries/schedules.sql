-- These statements are sent by a client, and are about schedules.

-- name: add_schedule
SELECT {schema}.add_schedule_from(%s::jsonb)

-- name: update_schedule
SELECT {schema}.update_schedule(%s::text, %s::jsonb, %s::text)

-- name: remove_schedule
SELECT {schema}.remove_schedule(%s::text, %s::text)

-- name: enable_schedule
SELECT {schema}.enable_schedule(%s::text, %s::text)

-- name: disable_schedule
SELECT {schema}.disable_schedule(%s::text, %s::text)

-- name: run_schedule
SELECT {schema}.run_schedule(%s::text, %s::text, %s::jsonb, %s::text)

-- name: schedule
SELECT
  id, tenant, name, status, pattern, every, at, tz, dst, start, "end", max_runs, jitter, type,
  payload, version, command, role, queue, priority, max_attempts, retry, timeout, expires, missed,
  catch_up, grace, overlap, deadline, run_on_start, enabled, description, category, tags, context,
  created_by, owner, hash, orphaned, differs_from_code, next_run, last_run, last_slot,
  last_outcome, last_error, last_error_at, runs, successes, failures, skips, missed_slots, running,
  failed_attempts, overdue, created_at, updated_at
FROM {schema}.schedule_by_name(%s::text, %s::text)

-- name: schedules
SELECT
  id, tenant, name, status, pattern, every, at, tz, dst, start, "end", max_runs, jitter, type,
  payload, version, command, role, queue, priority, max_attempts, retry, timeout, expires, missed,
  catch_up, grace, overlap, deadline, run_on_start, enabled, description, category, tags, context,
  created_by, owner, hash, orphaned, differs_from_code, next_run, last_run, last_slot,
  last_outcome, last_error, last_error_at, runs, successes, failures, skips, missed_slots, running,
  failed_attempts, overdue, created_at, updated_at
FROM {schema}.schedule_list(
  %(tenant)s::text, %(category)s::text, %(tag)s::text, %(status)s::text, %(after)s::text,
  %(limit)s::int)

-- name: changed_schedules
-- Returns the schedules of an App's code that an operator has changed.
SELECT s.name, s.enabled
FROM {schema}.schedule s
WHERE s.owner = %s::text
  AND s.differs_from_code
ORDER BY s.name

-- name: slots
SELECT
  slot, kind, until, count, outcome, reason, job_id, fired_at, started_at, finished_at, duration,
  error, result, node, host, due_by, overdue_at, attempt
FROM {schema}.slot_list(%s::text, %s::text, %s::timestamptz, %s::int, %s::text)

-- name: schedule_metrics
SELECT runs, success_rate, average, shortest, longest, p95, health
FROM {schema}.schedule_metrics(%s::text, %s::timestamptz, %s::text)

-- name: recent_schedule_metrics
-- Returns one row per schedule, in the given order, without schedules that were removed meanwhile.
SELECT s.name, s.tenant, m.runs, m.success_rate, m.average, m.shortest, m.longest, m.p95, m.health
FROM unnest(%s::text[], %s::text[]) s(name, tenant)
CROSS JOIN LATERAL {schema}.schedule_metrics(
  s.name, {schema}._clock() - interval '30 days', s.tenant, 100) m

-- name: why_schedule
SELECT fires, reason, next_run FROM {schema}.why_schedule(%s::text, %s::text)

-- name: schedule_stats
SELECT schedules, due, late, orphaned, overdue, next_run, capped
FROM {schema}.schedule_stats()

-- name: preview_schedule
SELECT {schema}.preview_schedule(%s::text, %s::int, %s::text)

-- name: schedule_differences
SELECT d.key, d.value, n.value
FROM {schema}.schedules s
CROSS JOIN LATERAL jsonb_each(s.declared_definition) d
JOIN LATERAL jsonb_each({schema}._make_schedule_definition(s)) n ON n.key = d.key
WHERE s.name = %s::text
  AND s.tenant = %s::text
  AND n.value <> d.value
ORDER BY d.key

-- name: schedule_names
SELECT name FROM {schema}.schedules WHERE tenant = %s::text ORDER BY name LIMIT 10000

-- name: node_types
SELECT DISTINCT type FROM {schema}.node_types ORDER BY type

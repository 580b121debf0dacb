-- The parts of a loaded installation: benchmarks/operations_bench.py runs them by name, in chunks.

-- name: unfinished
-- 100 queues, 1,000 types, 10 priorities; a third is due later, a tenth waits for other jobs.
INSERT INTO watchbill.jobs (
  id, created_at, run_at, wait, queue, type, priority, tenant, payload)
SELECT
  watchbill.uuid7(n.at), n.at,
  CASE WHEN n.kind < 1 / 3.0 THEN clock_timestamp() + random() * interval '30 days' + interval '1 day' ELSE n.at END,
  CASE WHEN n.kind < 1 / 3.0 THEN 'delayed' WHEN n.kind < 1 / 3.0 + 0.1 THEN 'blocked' END,
  'queue' || floor(random() * 100)::int, 'type' || floor(random() * 1000)::int, floor(random() * 10)::int,
  'default', jsonb_build_object('number', n.number, 'user', floor(random() * 10000)::int)
FROM (
  SELECT
    g AS number, random() AS kind,
    clock_timestamp() - interval '1 day' + g / %(of)s::float8 * interval '1 day' AS at
  FROM generate_series(%(first)s::bigint, %(first)s::bigint + %(count)s - 1) g) n

-- name: dependencies
WITH parents AS (
  SELECT array_agg(p.id) AS ids
  FROM (SELECT j.id FROM watchbill.jobs j WHERE j.wait = 'delayed' ORDER BY j.id LIMIT 1000) p)
INSERT INTO watchbill.dependencies (child, parent, place, run_if, tenant)
SELECT j.id, p.ids[1 + floor(random() * cardinality(p.ids))::int], 1, 'all_succeeded', 'default'
FROM watchbill.jobs j
CROSS JOIN parents p
WHERE j.wait = 'blocked'
ON CONFLICT DO NOTHING

-- name: awaited
UPDATE watchbill.jobs SET awaited = true WHERE id IN (SELECT d.parent FROM watchbill.dependencies d)

-- name: partitions
SELECT watchbill.make_partitions(days => 0, now => clock_timestamp() - d * interval '1 day')
FROM generate_series(1, 3) d

-- name: succeeded
INSERT INTO watchbill.finished_jobs (
  id, seq, run_at, created_at, started_at, finished_at, lane, run, policy, version, priority, attempt, max_attempts,
  lost, state, queue, type, tenant, payload)
SELECT
  watchbill.uuid7(n.at), -n.number, n.at, n.at, n.at + interval '0.1 s', n.at + interval '0.3 s', 0, 1, 1, 1,
  floor(random() * 10)::int, 1, 10, 0, 'succeeded', 'queue' || floor(random() * 100)::int,
  'type' || floor(random() * 1000)::int, 'default', jsonb_build_object('number', n.number)
FROM (
  SELECT g AS number, clock_timestamp() - interval '3 days' + g / %(of)s::float8 * interval '3 days' AS at
  FROM generate_series(%(first)s::bigint, %(first)s::bigint + %(count)s - 1) g) n

-- name: dead
INSERT INTO watchbill.finished_jobs (
  id, seq, run_at, created_at, started_at, finished_at, lane, run, policy, version, priority, attempt, max_attempts,
  lost, state, outcome, queue, type, tenant, payload, error, failure)
SELECT
  watchbill.uuid7(n.at), -1000000000 - n.number, n.at, n.at, n.at, n.at + interval '0.3 s', 0, 1, 1, 1, 0, 1, 1, 0,
  'dead', 'failed', 'queue' || n.number %% 100, e.type, 'default', '{}', e.error,
  watchbill._failure_of(e.type, e.error)
FROM (
  SELECT g AS number, clock_timestamp() - interval '3 days' + g / %(of)s::float8 * interval '3 days' AS at
  FROM generate_series(%(first)s::bigint, %(first)s::bigint + %(count)s - 1) g) n
CROSS JOIN LATERAL (
  SELECT
    'type' || n.number %% 50 AS type,
    jsonb_build_object('type', 'Refused', 'message', 'order ' || n.number || ' was refused') AS error) e

-- name: attempts
INSERT INTO watchbill.attempts (
  job_id, run, attempt, outcome, started_at, ended_at, error, queue, type, tenant, failure, due_at)
SELECT f.id, 1, 1, 'failed', f.started_at, f.finished_at, f.error, f.queue, f.type, f.tenant, f.failure, f.run_at
FROM watchbill.finished_jobs f
WHERE f.state = 'dead'

-- name: groups
INSERT INTO watchbill.failure_groups (
  failure, tenant, type, exception, message, example, first, last, attempts, dead)
SELECT
  f.failure, f.tenant, min(f.type), 'Refused', min(f.error->>'message'), (array_agg(f.id))[1], min(f.finished_at),
  max(f.finished_at), count(*), count(*)
FROM watchbill.finished_jobs f
WHERE f.state = 'dead'
GROUP BY 1, 2
ON CONFLICT DO NOTHING

-- name: schedules
SELECT watchbill.add_schedule(
  name => 'schedule ' || n, pattern => n %% 60 || ' ' || n %% 24 || ' * * *', type => 'type' || n, queue => 'queue' || n %% 100)
FROM generate_series(1, 1000) n

-- name: rollups
INSERT INTO watchbill.rollups (
  grain, dimension, at, name, succeeded, skipped, failed, timed_out, lost, snoozed, dead, canceled, run_seconds,
  wait_seconds)
SELECT 'minute', 'queue', date_trunc('minute', clock_timestamp()) - m * interval '1 minute', 'queue' || q,
  600, 0, 1, 0, 0, 0, 0, 0, 120, 60
FROM generate_series(0, 2879) m
CROSS JOIN generate_series(0, 99) q
UNION ALL
SELECT 'minute', 'all', date_trunc('minute', clock_timestamp()) - m * interval '1 minute', '',
  60000, 0, 100, 0, 0, 0, 0, 0, 12000, 6000
FROM generate_series(0, 2879) m
UNION ALL
SELECT 'ten_minutes', 'type', date_bin('10 minutes', clock_timestamp(), '2000-01-01Z') - m * interval '10 minutes',
  'type' || n, 600, 0, 1, 0, 0, 0, 0, 0, 120, 60
FROM generate_series(0, 143) m
CROSS JOIN generate_series(0, 999) n
ON CONFLICT DO NOTHING

-- What a client says: producers, operators, and those who wait for a result.

-- name: enqueue
SELECT id, seq, created, payload_differs FROM {schema}.enqueue(%s::text, %s::jsonb, %s::text, %s::int, %s::timestamptz, make_interval(secs => %s), %s::text,
  %s::int, %s::jsonb, make_interval(secs => %s), %s::text, make_interval(secs => %s), %s::int, %s::uuid, %s::text, %s::jsonb,
  resend => %s::boolean, strict => %s::boolean, max_payload => NULL)

-- name: enqueue_many
SELECT id, seq, created, payload_differs FROM {schema}.enqueue_many(%s::jsonb, resend => %s::boolean, strict => %s::boolean, max_payload => NULL)

-- name: enqueue_here
-- In a caller's own transaction, through whatever driver: text, boolean and bigint are all that goes in or comes out, since
-- those mean the same to each of them. The WHERE is evaluated before the function: no row means another installation, and nothing done.
WITH made AS MATERIALIZED (
  SELECT {schema}.enqueue(n.type, n.payload, n.queue, n.priority, n.run_at, n.delay, n.tenant, n.max_attempts, n.retry, n.timeout,
    n.idempotency_key, n.idempotency_window, n.version, n.id, n.created_by, n.meta, strict => %s::boolean, max_payload => NULL,
    depends_on => n.depends_on, run_if => n.run_if) AS job
  FROM {schema}.installation i, jsonb_populate_record(NULL::{schema}.new_job, %s::text::jsonb) n
  WHERE i.id = coalesce(%s::text::uuid, i.id))
SELECT (job).id::text, (job).seq, (job).created, (job).payload_differs FROM made

-- name: enqueue_many_here
WITH made AS MATERIALIZED (
  SELECT {schema}.enqueue_many(m.jobs, strict => m.strict, max_payload => NULL) AS job
  FROM {schema}.installation i, (SELECT %s::boolean AS strict, %s::text::jsonb AS jobs) m
  WHERE i.id = coalesce(%s::text::uuid, i.id))
SELECT (job).id::text, (job).seq, (job).created, (job).payload_differs FROM made

-- name: installation
SELECT id::text FROM {schema}.installation

-- name: incoming
-- COPY wants a table; it lives as long as the transaction.
CREATE TEMP TABLE watchbill_incoming OF {schema}.new_job ON COMMIT DROP

-- name: copy_incoming
COPY pg_temp.watchbill_incoming (id, type, payload, queue, priority, run_at, delay, tenant, max_attempts, retry, timeout, version, idempotency_key, idempotency_window, created_by, meta)
FROM STDIN

-- name: copy_incoming_flow
COPY pg_temp.watchbill_incoming FROM STDIN

-- name: enqueue_incoming
SELECT id::text, seq, created, payload_differs FROM {schema}.enqueue_from('pg_temp.watchbill_incoming'::regclass, resend => %s::boolean, strict => %s::boolean, max_payload => NULL)

-- name: drop_incoming
DROP TABLE pg_temp.watchbill_incoming

-- name: job
SELECT id, seq, type, tenant, queue, priority, payload, version, state, wait, attempt, max_attempts, run, lost, run_at, holder, claimed_at, lease_expires_at,
  started_at, finished_at, outcome, error, result, progress, canceling, timeout, idempotency_key, created_by, meta, created_at, updated_at, schedule_id, slot
FROM {schema}.job_by_id(%s::uuid)

-- name: job_as_text
-- Through any driver, as enqueue_here: a job and its attempts, as one text.
SELECT json_build_object('job', j, 'attempts', (SELECT coalesce(json_agg(a ORDER BY a.run), '[]') FROM {schema}.attempt a
  WHERE a.job_id = j.id AND a.ended_at >= {schema}.history_from(j.id)))::text
FROM {schema}.job_by_id(%s::text::uuid) j

-- name: jobs
SELECT id, seq, type, tenant, queue, priority, payload, version, state, wait, attempt, max_attempts, run, lost, run_at, holder, claimed_at, lease_expires_at,
  started_at, finished_at, outcome, error, result, progress, canceling, timeout, idempotency_key, created_by, meta, created_at, updated_at, schedule_id, slot
FROM {schema}.job_list(%(state)s::text[], %(type)s::text, %(queue)s::text, %(tenant)s::text, %(after)s::uuid, %(message)s::text, %(limit)s::int)

-- name: ending
-- What became of a job: nothing yet, its result, or why there is none.
SELECT state, result, error FROM {schema}.ending_of(%s::uuid)

-- name: attempts
SELECT job_id, run, attempt, outcome, holder, started_at, ended_at, error FROM {schema}.attempt
WHERE job_id = %(id)s::uuid AND ended_at >= {schema}.history_from(%(id)s::uuid) ORDER BY run

-- name: cancel
SELECT state, ended FROM {schema}.cancel_job(%s::uuid, %s::text, %s::boolean)

-- name: reschedule
SELECT {schema}.reschedule(%s::uuid, %s::timestamptz)

-- name: release
SELECT released, ended FROM {schema}.release_job(%s::uuid)

-- name: pause
SELECT {schema}.pause(%s::text, %s::text, %s::text)

-- name: resume
SELECT {schema}.resume(%s::text, %s::text)

-- name: pauses
SELECT queue, type, reason, by, at FROM {schema}.pauses ORDER BY queue NULLS FIRST, type NULLS FIRST

-- name: stats
SELECT queue, state, count, oldest, capped FROM {schema}.stats() ORDER BY queue, state

-- name: nodes
SELECT epoch, name, app, state, host, pid, started_at, heartbeat_at, lease_expires_at, claimed, types FROM {schema}.node
WHERE %s::boolean OR state IN ('active', 'draining') ORDER BY epoch DESC LIMIT 1000

-- name: drain
SELECT {schema}.drain(%s::text)

-- name: dead_groups
SELECT type, message, count, first, last, example FROM {schema}.dead_groups(%s::text, %s::text)

-- name: retry_dead
SELECT {schema}.reschedule_many(ARRAY['dead'], %s::text, %s::text, %s::text, %s::text, %s::int)

-- name: purge_dead
SELECT {schema}.purge(ARRAY['dead'], %s::text, %s::text, %s::text, %s::text, %s::int)

-- name: count_dead
SELECT count(*) FROM {schema}.job_list(ARRAY['dead'], %s::text, %s::text, %s::text, NULL, %s::text, %s::int)

-- name: earlier
SELECT id, depth, type, state, result, error FROM {schema}.earlier(%s::uuid, %s::text[], %s::int)

-- name: neighbours
SELECT n.relation, n.id, n.run_if, j.type, j.state FROM (
  (SELECT 'waits for' AS relation, d.parent AS id, d.run_if FROM {schema}.dependencies d WHERE d.child = %(id)s::uuid ORDER BY d.place LIMIT %(most)s::int)
  UNION ALL
  (SELECT 'then', d.child, d.run_if FROM {schema}.dependencies d WHERE d.parent = %(id)s::uuid ORDER BY d.child LIMIT %(most)s::int)) n
LEFT JOIN LATERAL {schema}.job_by_id(n.id) j ON true

-- name: family
SELECT f FROM {schema}.family(%s::uuid, %s::int) f

-- name: relatives
SELECT j.id, j.type, j.state, j.attempt, j.max_attempts, j.run_at, j.started_at, j.finished_at, j.error
FROM unnest(%s::uuid[]) x(id) CROSS JOIN LATERAL {schema}.job_by_id(x.id) j ORDER BY j.seq

-- name: dependencies
SELECT child, parent, place, run_if, outcome FROM {schema}.dependencies WHERE child = ANY (%s::uuid[]) AND parent = ANY (%s::uuid[]) ORDER BY child, place

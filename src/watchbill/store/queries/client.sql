-- These statements are sent by a client: by producers, operators, and callers that wait for a
-- result.

-- name: enqueue
-- If the caller has named a tenant, an argument sets watchbill.tenant to it. PostgreSQL evaluates
-- arguments before it calls enqueue(), so row security sees that tenant.
SELECT id, seq, created, payload_differs
FROM {schema}.enqueue(
  %s::text, %s::jsonb, %s::text, %s::int, %s::timestamptz, make_interval(secs => %s),
  CASE WHEN %s THEN set_config('watchbill.tenant', %s, true) ELSE 'default' END,
  %s::int, %s::jsonb, make_interval(secs => %s), %s::text, make_interval(secs => %s), %s::int,
  %s::uuid, %s::text, %s::jsonb, resend => %s::boolean, id_is_new => %s::boolean,
  strict => %s::boolean, max_payload => NULL, limit_keys => %s::text[], ordered_by => %s::text,
  route_by => %s::text, token_group => %s::text, runs_on => %s::jsonb, unique_by => %s::text,
  unique_until => %s::text, on_duplicate => %s::text, debounce_wait => make_interval(secs => %s),
  debounce_max => make_interval(secs => %s), expires_at => %s::timestamptz,
  expires_in => make_interval(secs => %s), results => %s::jsonb)

-- name: enqueue_plain
SELECT {schema}._enqueue_plain(
  %s::text, %s::jsonb, %s::text, %s::smallint,
  CASE WHEN %s THEN set_config('watchbill.tenant', %s, true) ELSE 'default' END,
  %s::smallint, %s::real, %s::int, %s::uuid, %s::text, %s::jsonb)

-- name: enqueue_plain_many
SELECT {schema}._enqueue_plain_many(
  %s::text, %s::text, %s::smallint, %s::text, %s::smallint, %s::real, %s::int, %s::text, %s::jsonb,
  %s::uuid[], %s::jsonb[], %s::boolean)

-- name: enqueue_many
SELECT id, seq, created, payload_differs
FROM {schema}.enqueue_many(
  %s::jsonb, resend => %s::boolean, ids_are_new => %s::boolean, strict => %s::boolean,
  max_payload => NULL)

-- name: enqueue_here
-- Runs in a caller's own transaction, through any driver. Its parameters and columns are only text,
-- boolean and bigint, which all drivers treat alike. PostgreSQL evaluates WHERE before it calls
-- enqueue(): if this database is another installation, the statement returns no row and has done
-- nothing.
WITH made AS MATERIALIZED (
  SELECT {schema}.enqueue(
    n.type, n.payload, n.queue, n.priority, n.run_at, n.delay,
    CASE
      WHEN n.tenant = 'default' THEN n.tenant
      ELSE set_config('watchbill.tenant', n.tenant, true)
    END,
    n.max_attempts, n.retry, n.timeout, n.idempotency_key, n.idempotency_window, n.version, n.id,
    n.created_by, n.meta,
    id_is_new => %s::boolean, strict => %s::boolean, max_payload => NULL,
    depends_on => n.depends_on, run_if => n.run_if, limit_keys => n.limit_keys,
    ordered_by => n.ordered_by, route_by => n.route_by, token_group => n.token_group,
    runs_on => n.runs_on, unique_by => n.unique_by, unique_until => n.unique_until,
    on_duplicate => n.on_duplicate, debounce_wait => n.debounce_wait,
    debounce_max => n.debounce_max, expires_at => n.expires_at, expires_in => n.expires_in,
    results => n.results
  ) AS job
  FROM {schema}.installation i,
    jsonb_populate_record(NULL::{schema}.new_job, %s::text::jsonb) n
  WHERE i.id = coalesce(%s::text::uuid, i.id))
SELECT (job).id::text, (job).seq, (job).created, (job).payload_differs
FROM made

-- name: enqueue_many_here
WITH made AS MATERIALIZED (
  SELECT {schema}.enqueue_many(
    CASE
      WHEN m.tenant IS NULL THEN m.jobs
      WHEN set_config('watchbill.tenant', m.tenant, true) IS NOT NULL THEN m.jobs
    END,
    ids_are_new => m.ids_are_new, strict => m.strict, max_payload => NULL
  ) AS job
  FROM {schema}.installation i, (
    SELECT
      %s::boolean AS ids_are_new, %s::boolean AS strict, %s::text::jsonb AS jobs,
      %s::text AS tenant) m
  WHERE i.id = coalesce(%s::text::uuid, i.id))
SELECT (job).id::text, (job).seq, (job).created, (job).payload_differs
FROM made

-- name: act_for_tenant
-- The setting lasts until the caller's transaction ends.
SELECT set_config('watchbill.tenant', %s, true)

-- name: installation
SELECT id::text FROM {schema}.installation

-- name: describe_caller
SELECT {schema}._describe_caller()

-- name: describe_blind_caller
SELECT {schema}._describe_blind_caller()

-- name: incoming
-- COPY needs a table to write to. This temporary table is dropped when the transaction ends.
CREATE TEMP TABLE watchbill_incoming OF {schema}.new_job ON COMMIT DROP

-- name: copy_incoming
COPY pg_temp.watchbill_incoming (
  id, type, payload, queue, priority, run_at, delay, tenant, max_attempts, retry, timeout, version,
  idempotency_key, idempotency_window, created_by, meta)
FROM STDIN

-- name: copy_incoming_whole
COPY pg_temp.watchbill_incoming (
  id, type, payload, queue, priority, run_at, delay, tenant, max_attempts, retry, timeout, version,
  idempotency_key, idempotency_window, created_by, meta, depends_on, run_if, limit_keys, ordered_by,
  route_by, token_group, runs_on, unique_by, unique_until, on_duplicate, debounce_wait,
  debounce_max, expires_at, expires_in, results)
FROM STDIN

-- name: enqueue_incoming
SELECT id::text, seq, created, payload_differs
FROM {schema}.enqueue_from(
  'pg_temp.watchbill_incoming'::regclass, resend => %s::boolean, ids_are_new => %s::boolean,
  strict => %s::boolean, max_payload => NULL)

-- name: drop_incoming
DROP TABLE pg_temp.watchbill_incoming

-- name: job
SELECT
  id, seq, type, tenant, queue, priority, payload, version, state, waits, wait, attempt,
  max_attempts, run, lost, run_at, holder, claimed_at, lease_expires_at, started_at, finished_at,
  outcome, error, result, progress, canceling, timeout, idempotency_key, created_by, meta,
  created_at, updated_at, schedule_id, slot, expires_at
FROM {schema}.job_by_id(%s::uuid)

-- name: job_as_text
-- Returns a job and its attempts as one JSON text, which every driver can read.
SELECT json_build_object('job', j, 'attempts', (
  SELECT coalesce(json_agg(a ORDER BY a.run), '[]')
  FROM {schema}.job_attempts(j.id) a))::text
FROM {schema}.job_by_id(%s::text::uuid) j

-- name: jobs
SELECT
  id, seq, type, tenant, queue, priority, payload, version, state, waits, wait, attempt,
  max_attempts, run, lost, run_at, holder, claimed_at, lease_expires_at, started_at, finished_at,
  outcome, error, result, progress, canceling, timeout, idempotency_key, created_by, meta,
  created_at, updated_at, schedule_id, slot, expires_at
FROM {schema}.job_list(
  %(state)s::text[], %(type)s::text, %(queue)s::text, %(tenant)s::text, %(after)s::uuid,
  %(message)s::text, %(limit)s::int)

-- name: job_page
SELECT
  id, seq, state, waits, type, queue, tenant, priority, attempt, max_attempts, run_at, created_at,
  started_at, finished_at, node, error, next, scanned, is_complete
FROM {schema}.job_page(%s::jsonb, %s::uuid, %s::int, %s::int)

-- name: job_ends
SELECT
  id, state, outcome, type, queue, tenant, attempt, max_attempts, started_at, ended_at, run_at,
  node, error, total
FROM {schema}._list_ends(%s::jsonb, %s::timestamptz, %s::int)

-- name: ending
-- Returns how a job ended; no row while the job is unfinished.
SELECT state, result, error FROM {schema}._read_job_ending(%s::uuid)

-- name: why_job
SELECT cause, reason, until, rank, needs_action, since, way_out, detail
FROM {schema}.why_job(%s::uuid)

-- name: why_jobs
SELECT cause, jobs, is_estimate, needs_action, example, reason, way_out
FROM {schema}.why_jobs(%s::text, %s::text, %s::text)

-- name: attempts
SELECT job_id, run, attempt, outcome, holder, started_at, ended_at, error
FROM {schema}.job_attempts(%(id)s::uuid)
ORDER BY run

-- name: job_log
SELECT run, ended_at, lines FROM {schema}.job_log(%s::uuid)

-- name: watch
SELECT {schema}.watch(%s::uuid, make_interval(secs => %s::float8))

-- name: job_steps
SELECT
  name, kind, state, run, tries, started_at, ended_at, wake_at, result, error, signals, ask
FROM {schema}.job_steps(%s::uuid)

-- name: waiting_steps
SELECT
  job_id, tenant, type, queue, name, kind, since, until, signals, ask, idempotency_key
FROM {schema}.waiting_steps(%s::text, %s::text, %s::int)

-- name: signal
SELECT {schema}.signal(%s::uuid, %s::text, %s::jsonb, %s::text)

-- name: signal_by_key
SELECT
  {schema}.signal_by_key(
    %s::text, %s::text, %s::text, %s::jsonb, %s::text,
    coalesce(%s::text, {schema}._session_tenant()))

-- name: wake
SELECT {schema}.wake(%s::uuid)

-- name: cancel
SELECT state, ended FROM {schema}._cancel_job(%s::uuid, %s::text, %s::boolean)

-- name: reschedule
SELECT {schema}.reschedule(%s::uuid, %s::timestamptz)

-- name: rewind
SELECT {schema}.rewind(%s::uuid, %s::text)

-- name: release
SELECT released, ended FROM {schema}._release_job(%s::uuid)

-- name: pause
SELECT {schema}.pause(%s::text, %s::text, %s::text)

-- name: resume
SELECT {schema}.resume(%s::text, %s::text)

-- name: pauses
SELECT queue, type, reason, by, at
FROM {schema}.pauses
ORDER BY queue NULLS FIRST, type NULLS FIRST

-- name: stats
SELECT queue, state, wait, count, oldest, estimated
FROM {schema}.stats()
ORDER BY queue, state, wait NULLS FIRST

-- name: nodes
SELECT
  epoch, name, app, state, host, pid, started_at, heartbeat_at, lease_expires_at, claimed, types,
  queues, processed, labels, capacity, leads
FROM {schema}.node
WHERE %s::boolean
  OR state IN ('active', 'draining')
ORDER BY epoch DESC
LIMIT 1000

-- name: drain
SELECT {schema}.drain(%s::text)

-- name: dead_groups
SELECT type, message, count, first, last, example, exception, failure
FROM {schema}.dead_groups(%s::text, %s::text)

-- name: audit
SELECT id, at, actor, login_role, action, subject, tenant, detail
FROM {schema}.audit_list(
  %s::text, %s::text, %s::text, %s::text, %s::timestamptz, %s::bigint, %s::int)

-- name: start_operation
SELECT {schema}.start_operation(
  %s::text, %s::jsonb, %s::text, %s::jsonb, %s::float8, %s::bigint, %s::text)

-- name: preview_backfill
SELECT slots, first, last, obstacles, is_complete
FROM {schema}.preview_backfill(%s::jsonb, %s::int)

-- name: add_operation_items
SELECT {schema}.add_operation_items(%s::bigint, %s::jsonb)

-- name: run_operation
SELECT {schema}.run_operations(%s::bigint)

-- name: bulk_operations
SELECT
  id, kind, state, tenant, filter, arguments, rate, max_jobs, created_by, created_at, ended_at,
  seen, done, skipped, failed, reasons, error
FROM {schema}.bulk_operations
WHERE id = coalesce(%s::bigint, id)
ORDER BY id DESC
LIMIT %s::int

-- name: pause_operation
SELECT {schema}.pause_operation(%s::bigint)

-- name: resume_operation
SELECT {schema}.resume_operation(%s::bigint)

-- name: cancel_operation
SELECT {schema}.cancel_operation(%s::bigint)

-- name: ancestors
SELECT id, depth, type, state, result, error
FROM {schema}.ancestors(%s::uuid, %s::text[], %s::int)

-- name: neighbours
-- Jobs of two tenants may have one id, but jobs that wait for each other have one tenant.
WITH own AS MATERIALIZED (SELECT tenant FROM {schema}.job_by_id(%(id)s::uuid))
SELECT n.relation, n.id, n.run_if, j.type, j.state
FROM (
  (
    SELECT 'waits for' AS relation, d.parent AS id, d.run_if, d.tenant
    FROM {schema}.dependencies d
    WHERE d.child = %(id)s::uuid
      AND d.tenant = (SELECT own.tenant FROM own)
    ORDER BY d.place
    LIMIT %(most)s::int)
  UNION ALL
  (
    SELECT 'then', d.child, d.run_if, d.tenant
    FROM {schema}.dependencies d
    WHERE d.parent = %(id)s::uuid
      AND d.tenant = (SELECT own.tenant FROM own)
    ORDER BY d.child
    LIMIT %(most)s::int)) n
LEFT JOIN LATERAL {schema}.job_by_id(n.id) j ON j.tenant = n.tenant

-- name: dependency_graph
SELECT f FROM {schema}.dependency_graph(%s::uuid, %s::int) f

-- name: relatives
SELECT
  j.id, j.type, j.state, j.attempt, j.max_attempts, j.run_at, j.started_at, j.finished_at, j.error
FROM unnest(%(ids)s::uuid[]) x(id)
CROSS JOIN LATERAL {schema}.job_by_id(x.id) j
-- The first one is the job whose relatives these are.
WHERE j.tenant = (SELECT r.tenant FROM {schema}.job_by_id((%(ids)s::uuid[])[1]) r)
ORDER BY j.seq

-- name: dependencies
SELECT child, parent, place, run_if, outcome, arguments
FROM {schema}.dependencies
WHERE child = ANY (%(ids)s::uuid[])
  AND parent = ANY (%(ids)s::uuid[])
  AND tenant = (SELECT r.tenant FROM {schema}.job_by_id((%(ids)s::uuid[])[1]) r)
ORDER BY child, place

-- name: jobs_by_prefix
-- Both halves of the UNION read only the first entries of an index.
SELECT j.id, j.type, j.state
FROM (
  (
    SELECT j.id
    FROM {schema}.jobs j
    WHERE j.id BETWEEN %(lowest)s::uuid AND %(highest)s::uuid
    ORDER BY j.id
    LIMIT %(limit)s::int)
  UNION
  (
    SELECT f.id
    FROM {schema}.finished_jobs f
    WHERE f.id BETWEEN %(lowest)s::uuid AND %(highest)s::uuid
      AND f.finished_at >= {schema}._history_start(%(lowest)s::uuid)
    ORDER BY f.id
    LIMIT %(limit)s::int)
  ORDER BY 1
  LIMIT %(limit)s::int) found
CROSS JOIN LATERAL {schema}.job_by_id(found.id) j
ORDER BY j.id

-- name: ids_nearby
-- For each id the nearest ids below and above it, between the bounds given with it.
SELECT given.id, nearby.id
FROM unnest(%(ids)s::uuid[], %(lowest)s::uuid[], %(highest)s::uuid[]) given(id, lowest, highest)
CROSS JOIN LATERAL (
  (
    SELECT j.id
    FROM {schema}.jobs j
    WHERE j.id >= given.lowest
      AND j.id < given.id
    ORDER BY j.id DESC
    LIMIT 1)
  UNION ALL
  (
    SELECT j.id
    FROM {schema}.jobs j
    WHERE j.id > given.id
      AND j.id <= given.highest
    ORDER BY j.id
    LIMIT 1)
  UNION ALL
  (
    SELECT f.id
    FROM {schema}.finished_jobs f
    WHERE f.id >= given.lowest
      AND f.id < given.id
      AND f.finished_at >= {schema}._history_start(given.lowest)
    ORDER BY f.id DESC
    LIMIT 1)
  UNION ALL
  (
    SELECT f.id
    FROM {schema}.finished_jobs f
    WHERE f.id > given.id
      AND f.id <= given.highest
      AND f.finished_at >= {schema}._history_start(given.lowest)
    ORDER BY f.id
    LIMIT 1)) nearby

-- name: served_queues
-- Returns one row per queue that an active node serves. A row with NULL stands for a node that has
-- not said which queues it serves.
SELECT DISTINCT q.queue
FROM {schema}.nodes n
LEFT JOIN LATERAL unnest(n.queues) q(queue) ON true
WHERE n.state = 'active'

-- name: known_queues
-- Returns the queues that nodes serve, that have jobs, that a schedule uses or that are paused.
SELECT unnest(n.queues) FROM {schema}.nodes n WHERE n.state IN ('active', 'draining')
UNION
SELECT s.queue FROM {schema}.stats() s
UNION
SELECT c.queue FROM {schema}.schedules c
UNION
SELECT p.queue FROM {schema}.pauses p WHERE p.queue IS NOT NULL

-- name: known_types
-- Returns the types that nodes handle, that jobs wait for, that a schedule uses or that are paused.
SELECT t.type FROM {schema}.node_types t
UNION
SELECT u.type FROM {schema}.unsupported_types u
UNION
SELECT c.type FROM {schema}.schedules c WHERE c.type IS NOT NULL
UNION
SELECT p.type FROM {schema}.pauses p WHERE p.type IS NOT NULL

-- name: ensure_limits
SELECT {schema}.ensure_limits(%s::text, %s::jsonb, %s::jsonb)

-- name: limits
SELECT
  name, max, rates, when_full, when_dead, owner, changed, holders, kept, waiters
FROM {schema}.limit_list()

-- name: limit_keys
SELECT key, holders, kept, held_since, waiters, waiting_since, next_at
FROM {schema}.limit_keys(%s::text, %s::int)

-- name: limit_holders
SELECT key, job_id, type, state, node, since
FROM {schema}.limit_holders(%s::text, %s::int)

-- name: set_limit
SELECT {schema}.set_limit(%s::text, %s::int, %s::jsonb, %s::text, %s::text)::text

-- name: clear_limit
SELECT {schema}.clear_limit(%s::text)

-- name: tenants
SELECT
  tenant, running, max_running, unfinished, max_unfinished, payload_bytes, max_payload_bytes,
  enqueued, max_per_minute, expected_heartbeats::float8, heartbeat_budget, over_budget, schedules,
  roles, erasing_since
FROM {schema}.tenant_list(%s::text)

-- name: set_tenant
SELECT {schema}.set_tenant(%s::text, %s::jsonb)

-- name: preview_erasure
SELECT what, row_count FROM {schema}.preview_erasure(%s::text)

-- name: erase_tenant
SELECT step, deleted, waiting, stored, is_done FROM {schema}.erase_tenant(%s::text, %s::boolean)

-- name: queue_rules
SELECT name, max, running, fair_by, shares, token_group, owner
FROM {schema}.queue_rules()

-- name: endpoints
SELECT
  tenant, name, rates, kind, base_url, headers, auth, hosts, timeout, max, failing_since,
  disabled_at, disabled_reason, owner, changed, created_by, created_at, updated_at, ordered
FROM {schema}.endpoint_list(%s::text, %s::text)

-- name: set_endpoint
SELECT {schema}.set_endpoint(%s::text, %s::jsonb, %s::text)

-- name: remove_endpoint
SELECT {schema}.remove_endpoint(%s::text, %s::text)

-- These statements are for watchbill.testing. Except for is_test, they run only in a schema that is
-- marked as a test schema.

-- name: is_test
SELECT test FROM {schema}.installation

-- name: mark_test
UPDATE {schema}.installation SET test = true, id = gen_random_uuid()

-- name: remove_test_mark
UPDATE {schema}.installation SET test = false, clock_offset = '0'

-- name: kept_rows
-- Names a job, a finished job and a schedule that the schema holds. A test run leaves none.
(SELECT 'job ' || j.type FROM {schema}.jobs j LIMIT 1)
UNION ALL
(SELECT 'finished job ' || f.type FROM {schema}.finished_jobs f LIMIT 1)
UNION ALL
(SELECT 'schedule ' || s.name FROM {schema}.schedules s LIMIT 1)

-- name: tables_in_use
-- Returns the tables that have or had rows. `large` is true if a table is too large to delete its
-- rows one by one.
SELECT c.relname::text, pg_relation_size(c.oid) > 1000000 AS large
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s
  AND c.relkind = 'r'
  AND c.relname <> ALL (%s::text[])
  AND pg_relation_size(c.oid) > 0

-- name: seed_tables
-- Returns what a test run has written about the tables that had rows when it began.
SELECT obj_description(n.oid, 'pg_namespace') FROM pg_namespace n WHERE n.nspname = %s

-- name: reset_clock
UPDATE {schema}.installation SET clock_offset = '0' WHERE clock_offset <> '0'

-- name: advance_clock
UPDATE {schema}.installation
SET clock_offset = clock_offset + %s::interval
RETURNING clock_timestamp() + clock_offset

-- name: clock
SELECT {schema}._clock()

-- name: promote_all
SELECT {schema}.promote(1000000000, now => %s::timestamptz)

-- name: ready
SELECT DISTINCT j.type, j.version, j.queue
FROM {schema}.jobs j
WHERE j.fence = 0
  AND (j.wait IS NULL OR j.wait = 'unsupported')
  AND NOT EXISTS (
    SELECT
    FROM {schema}.pauses p
    WHERE (p.queue IS NULL OR p.queue = j.queue)
      AND (p.type IS NULL OR p.type = j.type))

-- name: all_jobs
SELECT
  id, seq, type, tenant, queue, priority, payload, version, state, waits, wait, attempt,
  max_attempts, run, lost, run_at, holder, claimed_at, lease_expires_at, started_at, finished_at,
  outcome, error, result, progress, canceling, timeout, idempotency_key, created_by, meta,
  created_at, updated_at, schedule_id, slot, expires_at
FROM {schema}.job
ORDER BY seq

-- name: tick_now
-- For all tenants, as a node ticks, also if the test acts for one. tick() is called with what
-- set_config() returns, and so after it.
SELECT fired, missed, skipped, next_at, events::text
FROM (SELECT set_config('watchbill.tenant', '', true) AS tenant) unset
CROSS JOIN LATERAL {schema}.tick(1000 + length(unset.tenant))

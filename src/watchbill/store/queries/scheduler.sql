-- These statements are sent by a scheduler.

-- name: tick
SELECT fired, missed, skipped, extract(epoch FROM next_at - {schema}._clock())::float8, events::text
FROM {schema}.tick(%s::int, {schema}._clock() - make_interval(secs => %s))

-- name: declare_endpoints
SELECT name, outcome FROM {schema}.declare_endpoints(%s::bigint, %s::jsonb)

-- name: declare_limits
SELECT name, outcome FROM {schema}.declare_limits(%s::bigint, %s::jsonb)

-- name: declare_queues
SELECT name, outcome FROM {schema}.declare_queues(%s::bigint, %s::jsonb)

-- name: declare_schedules
SELECT name, outcome FROM {schema}.declare_schedules(%s::bigint, %s::jsonb)

-- name: start_cluster
SELECT {schema}.start_cluster(%s::bigint)

-- name: has_stale_declaration
SELECT {schema}._has_stale_declaration(%s::bigint)

-- name: add_flow_end
SELECT {schema}._add_chain_end(%s::uuid, %s::uuid[], %s::uuid[])

-- name: begin_command
-- Returns the SQL command of the job and its role, no row if it may run none; and sets the role and
-- the time-out for it.
SELECT
  c.command,
  c.role,
  current_setting('idle_in_transaction_session_timeout'),
  set_config('role', coalesce(c.role, current_setting('role')), true),
  set_config('statement_timeout', %s, true)
FROM {schema}._find_job_command(%s::uuid) c

-- name: release_orphans
SELECT {schema}._release_orphans()

-- name: make_slot_partitions
SELECT {schema}._make_slot_partitions()

-- name: prune_slots
SELECT {schema}.prune_slots(make_interval(secs => %s))

-- These statements are sent by a scheduler.

-- name: tick
SELECT fired, missed, skipped, extract(epoch FROM next_at - {schema}._clock())::float8, events::text
FROM {schema}.tick(%s::int, {schema}._clock() - make_interval(secs => %s))

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
-- Returns whether an open slot names this job. Sets the role and the time-out for the job's SQL
-- command.
SELECT
  EXISTS (
    SELECT
    FROM {schema}.jobs j
    JOIN {schema}.slots s ON s.schedule_id = j.schedule_id AND s.job_id = j.id
    WHERE j.id = %s::uuid
      AND s.slot = coalesce(j.slot, j.created_at)
      AND s.outcome IS NULL),
  current_setting('idle_in_transaction_session_timeout'),
  set_config('role', coalesce(%s, current_setting('role')), true),
  set_config('statement_timeout', %s, true)

-- name: release_orphans
SELECT {schema}._release_orphans()

-- name: make_slot_partitions
SELECT {schema}._make_slot_partitions()

-- name: prune_slots
SELECT {schema}.prune_slots(make_interval(secs => %s))

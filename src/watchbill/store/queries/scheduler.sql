-- What a scheduler says.

-- name: tick
SELECT fired, missed, skipped, extract(epoch FROM next_at - {schema}.clock())::float8, events::text
FROM {schema}.tick(%s::int, {schema}.clock() - make_interval(secs => %s))

-- name: declare_schedules
SELECT name, outcome FROM {schema}.declare_schedules(%s::bigint, %s::jsonb)

-- name: start_cluster
SELECT {schema}.start_cluster(%s::bigint)

-- name: declares_in_vain
SELECT {schema}.declares_in_vain(%s::bigint)

-- name: hand_over_slot
SELECT {schema}.hand_over_slot(%s::uuid, %s::uuid)

-- name: release_held
SELECT {schema}.release_held()

-- name: make_slot_partitions
SELECT {schema}.make_slot_partitions()

-- name: prune_slots
SELECT {schema}.prune_slots(make_interval(secs => %s))

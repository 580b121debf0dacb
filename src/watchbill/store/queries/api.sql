-- These statements are sent by the HTTP API.

-- name: add_api_key
SELECT {schema}.add_api_key(
  %s::text, %s::bytea, %s::text, %s::text, %s::text, %s::text[], %s::text[], %s::float8,
  %s::timestamptz)

-- name: revoke_api_key
SELECT {schema}.revoke_api_key(%s::text)

-- name: api_keys
SELECT
  id, name, role, tenant, queues, types, rate, state, created_by, created_at, expires_at, used_at,
  revoked_at, revoked_by
FROM {schema}.api_key_list()

-- name: use_api_key
SELECT name, role, tenant, queues, types, rate
FROM {schema}._use_api_key(%s::text, %s::bytea)

-- name: save_filter
SELECT {schema}.save_filter(%s::text, %s::text, %s::text, %s::text)

-- name: saved_filters
SELECT id, page, name, query, created_by, created_at
FROM {schema}.saved_filter_list(%s::text, %s::text)

-- name: remove_filter
SELECT {schema}.remove_filter(%s::bigint, %s::text)

-- name: add_chart_mark
SELECT {schema}.add_chart_mark(%s::text, %s::timestamptz)

-- name: chart_marks
SELECT id, at, text, created_by
FROM {schema}.chart_mark_list(%s::timestamptz, %s::timestamptz)

-- name: remove_chart_mark
SELECT {schema}.remove_chart_mark(%s::bigint)

-- name: change_job
SELECT {schema}._change_job(%s::uuid, %s::int, %s::text)

-- name: schedule_name
SELECT s.name, s.tenant
FROM {schema}.schedules s
WHERE s.id = %s::bigint

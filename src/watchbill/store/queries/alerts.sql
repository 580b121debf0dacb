-- These statements are about alerts, their rules, routes and silences.

-- name: alerts
SELECT
  id, rule, subject, tenant, severity, state, since, fired_at, cleared_at, announced_at,
  is_silenced, value, above, unit, reason, help, detail
FROM {schema}.alert_list(%s::timestamptz, %s::text, %s::bigint, %s::int)

-- name: alert_rules
SELECT
  rule, subject, about, above, unit, lasting, severity, is_enabled, title, changed_by, changed_at
FROM {schema}.alert_rule_list()

-- name: set_alert_rule
SELECT {schema}.set_alert_rule(
  %s::text, %s::text, %s::float8, %s::interval, %s::text, %s::boolean)::text

-- name: reset_alert_rule
SELECT {schema}.reset_alert_rule(%s::text, %s::text)

-- name: alert_routes
SELECT
  name, kind, target, secret, matcher, is_enabled, waiting, last_state, last_at, last_error,
  changed_by, changed_at
FROM {schema}.alert_route_list(%s::text)

-- name: set_alert_route
SELECT {schema}.set_alert_route(
  %s::text, %s::text, %s::text, %s::text, %s::jsonb, %s::boolean)::text

-- name: remove_alert_route
SELECT {schema}.remove_alert_route(%s::text)

-- name: test_alert_route
SELECT {schema}.test_alert_route(%s::text)

-- name: alert_deliveries
SELECT id, alert, route, event, state, created_at, due_at, tries, ended_at, error
FROM {schema}.alert_delivery_list(%s::bigint, %s::text, %s::uuid, %s::int)

-- name: silences
SELECT id, matcher, until, reason, created_by, created_at
FROM {schema}.silence_list(%s::boolean)

-- name: add_silence
SELECT {schema}.add_silence(%s::jsonb, NULL, %s::timestamptz, %s::text)

-- name: add_silence_for
SELECT {schema}.add_silence(%s::jsonb, %s::interval, NULL, %s::text)

-- name: end_silence
SELECT {schema}.end_silence(%s::bigint)

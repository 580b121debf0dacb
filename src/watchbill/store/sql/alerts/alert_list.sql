-- after: alert_rule_list, alert_matchers
-- Lists alerts, those that fire first, then the newest: open ones, and with `since` also those that
-- have cleared since then. `pending` ones are not raised yet, because what is wrong has not lasted.
-- `is_silenced`: a silence keeps it back. `help` is a command. A caller that sees one tenant gets
-- only alerts about what belongs to it.
CREATE OR REPLACE FUNCTION alert_list(
  since timestamptz DEFAULT NULL,
  rule text DEFAULT NULL,
  id bigint DEFAULT NULL,
  max int DEFAULT 1000,
  now timestamptz DEFAULT NULL
)
RETURNS TABLE (
  id bigint,
  rule text,
  subject text,
  tenant text,
  severity text,
  state text,
  since timestamptz,
  fired_at timestamptz,
  cleared_at timestamptz,
  announced_at timestamptz,
  is_silenced boolean,
  value float8,
  above float8,
  unit text,
  reason text,
  help text,
  detail jsonb
)
LANGUAGE sql STABLE AS $$
  SELECT
    a.id, a.rule, a.subject, a.tenant, a.severity, a.state, a.since, a.fired_at, a.cleared_at,
    a.announced_at,
    a.cleared_at IS NULL AND _is_silenced(a, _clock(alert_list.now)),
    a.value, a.above, d.unit, a.reason, _write_alert_help(d.help, a.subject), a.detail
  FROM alerts a
  LEFT JOIN _alert_rule_defaults() d ON d.rule = a.rule
  WHERE CASE
      WHEN alert_list.id IS NOT NULL THEN a.id = alert_list.id
      ELSE a.cleared_at IS NULL OR a.cleared_at >= alert_list.since
    END
    AND (alert_list.rule IS NULL OR a.rule = alert_list.rule)
  ORDER BY array_position('{firing,pending,cleared}'::text[], a.state), a.since DESC, a.id DESC
  LIMIT alert_list.max
$$;

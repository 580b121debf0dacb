-- Changes a rule, for all subjects or for one; what is NULL stays as it is. Locks the row of the
-- rule.
CREATE OR REPLACE FUNCTION set_alert_rule(
  rule text,
  subject text DEFAULT '',
  above float8 DEFAULT NULL,
  lasting interval DEFAULT NULL,
  severity text DEFAULT NULL,
  is_enabled boolean DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := _clock(now);
BEGIN
  PERFORM _check_shared_change('set_alert_rule');
  PERFORM _check_alert_rule(
    set_alert_rule.rule, set_alert_rule.above, set_alert_rule.lasting, set_alert_rule.severity);
  IF num_nonnulls(
    set_alert_rule.above, set_alert_rule.lasting, set_alert_rule.severity,
    set_alert_rule.is_enabled) = 0 THEN
    RAISE EXCEPTION 'there is nothing to change'
      USING ERRCODE = 'WB003', HINT = 'give above, lasting, severity or is_enabled';
  END IF;
  INSERT INTO alert_rules AS r (
    rule, subject, above, lasting, severity, is_enabled, changed_by, changed_at)
  VALUES (
    set_alert_rule.rule, coalesce(set_alert_rule.subject, ''), set_alert_rule.above,
    set_alert_rule.lasting, set_alert_rule.severity, set_alert_rule.is_enabled, _actor(), t)
  ON CONFLICT (rule, subject) DO UPDATE
  SET above = coalesce(EXCLUDED.above, r.above),
    lasting = coalesce(EXCLUDED.lasting, r.lasting),
    severity = coalesce(EXCLUDED.severity, r.severity),
    is_enabled = coalesce(EXCLUDED.is_enabled, r.is_enabled),
    changed_by = EXCLUDED.changed_by,
    changed_at = EXCLUDED.changed_at;
  PERFORM _audit(
    'set_alert_rule',
    concat_ws(' ', 'alert', set_alert_rule.rule, nullif(set_alert_rule.subject, '')), NULL,
    jsonb_strip_nulls(jsonb_build_object(
      'above', set_alert_rule.above, 'lasting', set_alert_rule.lasting,
      'severity', set_alert_rule.severity, 'is_enabled', set_alert_rule.is_enabled)),
    t);
END $$;

-- Raises unless there is such a rule, and it can have these values.
CREATE OR REPLACE FUNCTION _check_alert_rule(
  rule text, above float8, lasting interval, severity text
)
RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
#variable_conflict use_variable
DECLARE
  known record;
BEGIN
  SELECT * INTO known FROM _alert_rule_defaults() d WHERE d.rule = rule;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'there is no alert rule %', coalesce(quote_literal(rule), 'NULL')
      USING ERRCODE = 'WB003',
        HINT = (
          SELECT 'the rules are ' || string_agg(d.rule, ', ' ORDER BY d.rule)
          FROM _alert_rule_defaults() d);
  ELSIF above IS NOT NULL AND known.unit IS NULL THEN
    RAISE EXCEPTION 'above is invalid: the rule % asks yes or no', rule
      USING ERRCODE = 'WB003', HINT = 'give lasting, severity or is_enabled';
  ELSIF NOT above BETWEEN 0 AND 1e15 THEN
    RAISE EXCEPTION 'above is invalid'
      USING ERRCODE = 'WB003', HINT = 'give a number of ' || known.unit;
  ELSIF NOT lasting BETWEEN '0' AND interval '30 days' THEN
    RAISE EXCEPTION 'lasting is invalid'
      USING ERRCODE = 'WB003', HINT = 'give a time from 0 to 30 days';
  ELSIF severity NOT IN ('info', 'warning', 'critical') THEN
    RAISE EXCEPTION 'severity % is invalid', quote_literal(severity)
      USING ERRCODE = 'WB003', HINT = 'give info, warning or critical';
  END IF;
END $$;

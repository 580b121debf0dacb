-- Gives a rule its default values again, for all subjects or for one. Returns whether an operator
-- had changed it.
CREATE OR REPLACE FUNCTION reset_alert_rule(
  rule text, subject text DEFAULT '', now timestamptz DEFAULT NULL
)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
BEGIN
  PERFORM _check_shared_change('reset_alert_rule');
  PERFORM _check_alert_rule(rule, NULL, NULL, NULL);
  DELETE FROM alert_rules r WHERE r.rule = rule AND r.subject = coalesce(subject, '');
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM _audit(
    'reset_alert_rule', concat_ws(' ', 'alert', rule, nullif(subject, '')), NULL, NULL, t);
  RETURN true;
END $$;

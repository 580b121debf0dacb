-- after: caller
-- Notes that something has happened that no table shows afterwards, for the alert `rule`. Waits for
-- another note on the same subject.
CREATE OR REPLACE FUNCTION _note_alert_event(
  rule text, subject text, value float8, t timestamptz
)
RETURNS void
LANGUAGE sql VOLATILE AS $$
  INSERT INTO alert_events AS e (rule, subject, at, value)
  VALUES (_note_alert_event.rule, _note_alert_event.subject, t, _note_alert_event.value)
  ON CONFLICT (rule, subject) DO UPDATE
  SET at = EXCLUDED.at,
    value = EXCLUDED.value
$$;

-- Silences for ten minutes what may follow from an act of an operator.
CREATE OR REPLACE FUNCTION _silence_consequences(matcher jsonb, reason text, t timestamptz)
RETURNS void
LANGUAGE sql VOLATILE AS $$
  INSERT INTO silences (matcher, until, reason, created_by, created_at)
  VALUES (
    matcher, t + interval '10 minutes', reason, _actor(), t)
$$;

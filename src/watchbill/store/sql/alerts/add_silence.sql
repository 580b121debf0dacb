-- Keeps alerts back that fit the matcher, until `until`, or for `lasting`. They are still raised
-- and listed; one that still fires when the silence ends is sent then. Returns the id of the
-- silence.
CREATE OR REPLACE FUNCTION add_silence(
  matcher jsonb,
  lasting interval DEFAULT NULL,
  until timestamptz DEFAULT NULL,
  reason text DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  t timestamptz := _clock(now);
  ends timestamptz := coalesce(until, t + lasting);
  silence bigint;
BEGIN
  PERFORM _check_shared_change('add_silence');
  PERFORM _check_alert_matcher(matcher);
  IF num_nonnulls(lasting, until) <> 1 OR ends <= t OR ends > t + interval '1 year' THEN
    RAISE EXCEPTION 'the end of the silence is invalid'
      USING ERRCODE = 'WB003', HINT = 'give lasting or until, at most a year ahead';
  END IF;
  INSERT INTO silences (matcher, until, reason, created_by, created_at)
  VALUES (matcher, ends, left(reason, 500), _actor(), t)
  RETURNING id INTO silence;
  PERFORM _audit(
    'add_silence', 'silence ' || silence, NULL,
    jsonb_strip_nulls(jsonb_build_object('matcher', matcher, 'until', ends, 'reason', reason)), t);
  RETURN silence;
END $$;

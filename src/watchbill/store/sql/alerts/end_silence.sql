-- Ends a silence now. Returns whether it was still in force.
CREATE OR REPLACE FUNCTION end_silence(id bigint, now timestamptz DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
BEGIN
  PERFORM _check_shared_change('end_silence');
  UPDATE silences s SET until = t WHERE s.id = id AND s.until > t;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM _audit('end_silence', 'silence ' || id, NULL, NULL, t);
  RETURN true;
END $$;

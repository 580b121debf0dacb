-- Begins the daily verification if no node has done so since this instant, which is by the clock of
-- the node and may lie ahead. Returns whether the caller is to do it. If a node has begun and has
-- not ended it within ten minutes, another one begins again. Locks the row `verify` of chore_marks.
CREATE OR REPLACE FUNCTION _begin_verification(since timestamptz, now timestamptz DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
BEGIN
  PERFORM _check_shared_change('_begin_verification');
  -- It is never due for _observe(), which does the other chores of this table.
  INSERT INTO chore_marks (chore, due_at) VALUES ('verify', 'infinity') ON CONFLICT DO NOTHING;
  UPDATE chore_marks m
  SET last_at = greatest(t, since), took = NULL
  WHERE m.chore = 'verify'
    AND (
      m.last_at IS NULL
      OR m.last_at < since
      OR m.took IS NULL AND m.last_at < t - interval '10 minutes');
  RETURN FOUND;
END $$;

-- Ends the daily verification. `damage` says what was found; NULL: nothing. The alert `verify`
-- reads it. Locks the row `verify` of chore_marks.
CREATE OR REPLACE FUNCTION _end_verification(took float8, damage text)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  PERFORM _check_shared_change('_end_verification');
  UPDATE chore_marks m
  SET took = took, error = left(damage, 1000)
  WHERE m.chore = 'verify';
END $$;

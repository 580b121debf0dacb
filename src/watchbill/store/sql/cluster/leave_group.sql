-- A member gets no more tokens, and the leader moves those that it has. It keeps working on them
-- until it passes them on. Returns whether it still has some. Locks the row of the group.
CREATE OR REPLACE FUNCTION leave_group(
  epoch bigint,
  token_group text,
  now timestamptz DEFAULT NULL
)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  has_tokens boolean;
BEGIN
  PERFORM _check_shared_change('leave_group');
  PERFORM _lock_group(token_group);
  has_tokens := EXISTS (
    SELECT
    FROM tokens x
    WHERE x.token_group = token_group
      AND x.epoch = epoch);
  IF has_tokens THEN
    UPDATE members m
    SET is_leaving = true
    WHERE m.token_group = token_group
      AND m.epoch = epoch;
  ELSE
    DELETE FROM members m
    WHERE m.token_group = token_group
      AND m.epoch = epoch;
  END IF;
  PERFORM _wake_members();
  RETURN has_tokens;
END $$;

-- Lists the chores that nodes do in turns: when each was done last and is due next, the seconds it
-- took, and its last error. Locks nothing.
CREATE OR REPLACE FUNCTION _list_chores()
RETURNS TABLE (
  chore text,
  last_at timestamptz,
  due_at timestamptz,
  took float8,
  error text
)
LANGUAGE sql STABLE AS $$
  SELECT m.chore, m.last_at, m.due_at, m.took, m.error FROM chore_marks m ORDER BY m.chore
$$;

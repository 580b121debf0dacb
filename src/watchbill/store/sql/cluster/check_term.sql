-- Keeps a leader in office until the caller's transaction ends. Raises WB012 if the group has had a
-- later leader, or if the leader has resigned. Every function that writes for a leader calls this
-- first, in the same transaction. Locks the row of the lock FOR KEY SHARE, as lock_check() does.
CREATE OR REPLACE FUNCTION _check_term(group_name text, term bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM lock_check('leader/' || group_name, term);
END $$;

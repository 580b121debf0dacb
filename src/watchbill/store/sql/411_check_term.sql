-- Keeps a leader in office until the caller's transaction ends. Raises WB012 if the group has had a
-- later leader, or the leader has resigned. Everything that a leader writes calls this in the same
-- transaction, before it writes. Locks the row of the lock FOR KEY SHARE, as lock_check() does.
CREATE OR REPLACE FUNCTION _check_term(group_name text, term bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM lock_check('leader/' || _check_term.group_name, _check_term.term);
END $$;

-- Keeps a lock from being granted to another caller until the caller's transaction ends. Raises if
-- the lock was granted to another caller, or released, before. Does not raise if the lock has
-- expired and was not granted again. Locks the lock's row FOR KEY SHARE, so that renewals do not
-- wait.
CREATE OR REPLACE FUNCTION lock_check(name text, fence bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  PERFORM _check_shared_change('lock_check');
  PERFORM
  FROM locks l
  WHERE l.name = name
    AND l.fence = fence
    AND l.holder IS NOT NULL
  FOR KEY SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'lock % is no longer held under fence %',
      quote_literal(name), fence
      USING ERRCODE = 'WB012',
        HINT = 'it expired and another caller acquired it, or it was released: roll back';
  END IF;
END $$;

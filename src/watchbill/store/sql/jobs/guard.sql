-- Keeps a job from being released or reclaimed while the caller's transaction is open. Raises if
-- the job was released or reclaimed before. Locks the job FOR KEY SHARE, and not FOR SHARE, so that
-- cancel() can write a stop request.
CREATE OR REPLACE FUNCTION guard(id uuid, fence bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
BEGIN
  PERFORM
  FROM jobs j
  WHERE j.id = id
    AND j.fence = fence
    AND j.fence <> 0
  FOR KEY SHARE;
  IF NOT FOUND THEN PERFORM _refuse_stale_fence(id, fence); END IF;
END $$;

CREATE OR REPLACE FUNCTION _refuse_stale_fence(id uuid, fence bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  RAISE EXCEPTION 'job % is no longer claimed under fence %', id, fence
    USING ERRCODE = 'WB007',
      HINT = 'its lease ran out, or an operator released it: roll back, another node runs it';
END $$;

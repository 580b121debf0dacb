-- Stores the result of one step in the caller's transaction, which commits what the step has
-- written as well. Raises WB007 if the job has another fence now: then roll back. Returns false if
-- the step is stored already: then roll back too, because its effects are committed. `seq` is the
-- order in which the steps of the job are stored; NULL: after the last. The other arguments are
-- explained at save_steps(). Locks the job FOR KEY SHARE.
CREATE OR REPLACE FUNCTION save_step(
  id uuid,
  fence bigint,
  name text,
  result jsonb DEFAULT NULL,
  seq int DEFAULT NULL,
  version int DEFAULT 1,
  tries int DEFAULT 1,
  digest bigint DEFAULT NULL,
  age float8 DEFAULT NULL,
  has_undo boolean DEFAULT false,
  now timestamptz DEFAULT NULL
)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  j jobs;
BEGIN
  PERFORM _check_isolation('save_step');
  SELECT * INTO j
  FROM jobs x
  WHERE x.id = id
    AND x.fence = fence
    AND x.fence <> 0
  FOR KEY SHARE;
  IF NOT FOUND THEN PERFORM _refuse_stale_fence(id, fence); END IF;
  INSERT INTO steps AS s (
    job_id, tenant, name, seq, kind, state, fence, run, version, tries, digest, started_at,
    ended_at, result, has_undo)
  VALUES (
    id, j.tenant, name,
    coalesce(seq, (
      SELECT max(x.seq) + 1
      FROM steps x
      WHERE x.job_id = id
        AND x.tenant = j.tenant), 1),
    'run', 'done', fence, j.run, version, tries, digest, _started_at(t, age), t, result,
    has_undo)
  ON CONFLICT ON CONSTRAINT steps_pkey DO UPDATE
  SET seq = EXCLUDED.seq,
    state = EXCLUDED.state,
    fence = EXCLUDED.fence,
    run = EXCLUDED.run,
    tries = EXCLUDED.tries,
    ended_at = EXCLUDED.ended_at,
    result = EXCLUDED.result,
    error = NULL,
    has_undo = EXCLUDED.has_undo
  WHERE s.ended_at IS NULL;
  RETURN FOUND;
END $$;

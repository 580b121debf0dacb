-- Stores that a step of a running job waits for other jobs, in the caller's transaction, which may
-- have enqueued them. `are_children`: they are canceled with the job. Raises WB007 if the job has
-- another fence now, and returns false if the step is stored already: then roll back. End the run
-- as `suspended` after the commit: the end of the last of these jobs makes the job ready. Locks the
-- job FOR KEY SHARE, and of the others those that no other transaction has locked; unblock() marks
-- the rest as awaited.
CREATE OR REPLACE FUNCTION await_jobs(
  id uuid,
  fence bigint,
  step text,
  seq int,
  jobs_to_await uuid[],
  are_children boolean DEFAULT true,
  digest bigint DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  number int := cardinality(jobs_to_await);
  j jobs;
  marked uuid[];
BEGIN
  PERFORM _check_isolation('await_jobs');
  SELECT * INTO j
  FROM jobs x
  WHERE x.id = id
    AND x.fence = fence
    AND x.fence <> 0
  FOR KEY SHARE;
  IF NOT FOUND THEN PERFORM _refuse_stale_fence(id, fence); END IF;
  INSERT INTO steps (
    job_id, tenant, name, seq, kind, state, fence, run, version, tries, digest, started_at)
  VALUES (id, j.tenant, step, seq, 'jobs', 'waiting', fence, j.run, 1, 1, digest, t)
  ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM _check_parents(
    jobs_to_await, array_fill(j.tenant, ARRAY[number]), array_fill(j.type, ARRAY[number]));
  INSERT INTO step_waits (job_id, tenant, step, place, child, is_child)
  SELECT id, j.tenant, step, c.place, c.child, are_children
  FROM unnest(jobs_to_await) WITH ORDINALITY c(child, place);
  WITH locked AS (
      SELECT x.id
      FROM jobs x
      WHERE x.id = ANY (jobs_to_await)
      ORDER BY x.id
      FOR NO KEY UPDATE SKIP LOCKED),
    u AS (UPDATE jobs x SET awaited = true FROM locked l WHERE x.id = l.id RETURNING x.id)
  SELECT coalesce(array_agg(u.id), '{}') INTO marked FROM u;
  INSERT INTO dependency_checks (id, what, at)
  SELECT DISTINCT c, 'parent', t
  FROM unnest(jobs_to_await) c
  WHERE c <> ALL (marked);
  IF FOUND THEN PERFORM _wake_unblockers(); END IF;
  RETURN true;
END $$;

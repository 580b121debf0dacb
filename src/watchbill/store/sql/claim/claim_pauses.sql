-- Those of the queues that are not paused.
CREATE OR REPLACE FUNCTION _unpaused_queues(queues text[])
RETURNS text[]
LANGUAGE sql STABLE
AS $$
  SELECT coalesce(array_agg(q.queue ORDER BY q.n), '{}')
  FROM unnest(queues) WITH ORDINALITY q(queue, n)
  WHERE NOT EXISTS (SELECT FROM pauses p WHERE p.queue = q.queue AND p.type IS NULL)
$$;

-- Sets the picked jobs aside whose type is paused, so that later claims do not read them. Returns
-- the others.
CREATE OR REPLACE FUNCTION _set_paused_jobs_aside(jobs picked_job[])
RETURNS picked_job[]
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  paused tid[] := ARRAY(
    SELECT j.ctid
    FROM jobs j
    WHERE j.ctid = ANY (ARRAY(SELECT p.tid FROM unnest(jobs) p))
      AND EXISTS (
        SELECT
        FROM pauses p
        WHERE p.type = j.type
          AND (p.queue IS NULL OR p.queue = j.queue)));
BEGIN
  UPDATE jobs j
  SET wait = 'paused', wait_key = _paused_key(j.queue, j.type)
  WHERE j.ctid = ANY (paused);
  RETURN ARRAY(SELECT p FROM unnest(jobs) p WHERE p.tid <> ALL (paused));
END $$;

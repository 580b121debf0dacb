-- Cancels jobs of a schedule. If a job ends a chain, cancels the steps that it waits for; the job
-- itself then ends as canceled, unless all steps have succeeded. Running jobs get a stop request.
-- Returns the jobs that have ended.
CREATE OR REPLACE FUNCTION _cancel_schedule_jobs(ids uuid[], reason text, t timestamptz)
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  wanted uuid[];
  chains uuid[];
BEGIN
  SELECT
    array_agg(x.id) FILTER (WHERE x.type <> 'watchbill.flow_end'),
    array_agg(x.id) FILTER (WHERE x.type = 'watchbill.flow_end')
  INTO wanted, chains
  FROM unnest(_lock_jobs_briefly(ids)) l
  JOIN jobs x ON x.id = l;
  IF chains IS NOT NULL THEN
    UPDATE jobs j SET canceling = true WHERE j.id = ANY (chains);
    wanted := wanted || _lock_jobs_briefly(ARRAY(
      SELECT d.parent
      FROM jobs c
      JOIN dependencies d ON d.child = c.id AND d.tenant = c.tenant
      JOIN jobs p ON p.id = d.parent AND p.tenant = d.tenant
      WHERE c.id = ANY (chains)));
  END IF;
  RETURN ARRAY(
    SELECT f
    FROM unnest(wanted) f
    CROSS JOIN LATERAL _cancel_job_at(f, reason, false, t) c
    WHERE c.ended);
END $$;

-- Locks jobs FOR NO KEY UPDATE, waits at most 100 ms for each, and returns the jobs that it has
-- locked. A claim holds its locks only for a moment, but the transaction of a handler may hold its
-- lock for long.
CREATE OR REPLACE FUNCTION _lock_jobs_briefly(ids uuid[])
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '100ms'
AS $$
DECLARE
  locked uuid[] := ARRAY(
    SELECT j.id
    FROM jobs j
    WHERE j.id = ANY (ids)
    ORDER BY j.id
    FOR NO KEY UPDATE SKIP LOCKED);
  other uuid;
BEGIN
  FOR other IN
    SELECT j.id
    FROM jobs j
    WHERE j.id = ANY (ids)
    EXCEPT
    SELECT unnest(locked)
    ORDER BY 1
  LOOP
    BEGIN
      PERFORM FROM jobs j WHERE j.id = other FOR NO KEY UPDATE;
      IF FOUND THEN locked := locked || other; END IF;
    EXCEPTION WHEN lock_not_available THEN EXIT;
    END;
  END LOOP;
  RETURN locked;
END $$;

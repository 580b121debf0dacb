-- Reschedules jobs that match the same conditions as in job_list(), at most `max` in a call: call
-- it until it returns 0. Skips jobs that a node has just claimed, and queued jobs that already have
-- this run_at.
CREATE OR REPLACE FUNCTION reschedule_many(
  states text[],
  type text DEFAULT NULL,
  queue text DEFAULT NULL,
  tenant text DEFAULT NULL,
  message text DEFAULT NULL,
  max int DEFAULT 1000,
  run_at timestamptz DEFAULT NULL,
  ids uuid[] DEFAULT NULL,
  created_after timestamptz DEFAULT NULL,
  created_before timestamptz DEFAULT NULL,
  finished_after timestamptz DEFAULT NULL,
  finished_before timestamptz DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  t timestamptz := _clock(now);
  last_id uuid;
  l record;
  n int := 0;
BEGIN
  IF 'running' = ANY (states) THEN
    RAISE EXCEPTION 'running jobs cannot be rescheduled'
      USING ERRCODE = 'WB008', HINT = 'cancel or release them first';
  ELSIF coalesce(cardinality(states), 0) = 0
      OR NOT states <@ '{blocked,queued,failed,succeeded,dead,canceled}' THEN
    RAISE EXCEPTION 'states % is invalid', states
      USING ERRCODE = 'WB003',
        HINT = 'give some of blocked, queued, failed, succeeded, dead, canceled';
  END IF;
  LOOP
    FOR l IN
      SELECT *
      FROM job_list(
        states, type, queue,
        tenant, last_id, message, max, ids, created_after, created_before,
        finished_after, finished_before)
    LOOP
      last_id := l.id;
      CONTINUE WHEN l.state IN ('blocked', 'queued')
        AND (l.run_at = run_at OR run_at IS NULL AND l.run_at <= t);
      BEGIN
        IF _reschedule_job(l.id, l.seq, run_at, t) IS NOT NULL THEN
          n := n + 1;
        END IF;
      -- A node has just claimed the job, another job has taken its id, or the caller may not
      -- run its SQL command again. So the job stays as it is.
      EXCEPTION
        WHEN SQLSTATE 'WB008' OR SQLSTATE 'WB013' THEN NULL;
        -- A quota of the tenant is full. The next call says so.
        WHEN SQLSTATE 'WB015' THEN
          IF n = 0 THEN RAISE; END IF;
          RETURN n;
      END;
      IF n >= max THEN RETURN n; END IF;
    END LOOP;
    IF NOT FOUND THEN RETURN n; END IF;
  END LOOP;
END $$;

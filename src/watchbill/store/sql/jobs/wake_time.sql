-- Returns when a job that waits in its steps is due: at `t` if a signal that a step waits for is
-- unread, or if the jobs that a step waits for have ended; else at the earliest wake time of these
-- steps, but not before `t`; `infinity` if none has a wake time. `waits` are the names of these
-- steps, as JSON; NULL: all that are open. A step that the code does not call any more may be open
-- for ever, and a job that counted it would be ready again and again. The caller has locked the
-- job.
CREATE OR REPLACE FUNCTION _find_wake_time(
  job_id uuid, tenant text, t timestamptz, waits jsonb DEFAULT NULL
)
RETURNS timestamptz
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_variable
BEGIN
  RETURN (
    SELECT
      CASE
        WHEN count(*) = 0 OR bool_or(_has_unread_signal(s))
          OR bool_or(s.kind = 'jobs' AND NOT _has_open_wait(s))
          THEN t
        ELSE greatest(t, min(coalesce(s.wake_at, 'infinity')))
      END
    FROM steps s
    WHERE s.job_id = job_id
      AND s.tenant = tenant
      AND s.ended_at IS NULL
      AND s.state <> 'begun'
      AND (waits IS NULL OR waits ? s.name));
END $$;

-- Says whether a signal that the step waits for is unread.
CREATE OR REPLACE FUNCTION _has_unread_signal(s steps)
RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
  RETURN s.signals IS NOT NULL AND EXISTS (
    SELECT
    FROM signals g
    WHERE g.job_id = s.job_id
      AND g.tenant = s.tenant
      AND g.read_by IS NULL
      AND g.name = ANY (s.signals));
END $$;

-- Says whether a job for which the step waits has not ended.
CREATE OR REPLACE FUNCTION _has_open_wait(s steps)
RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
  RETURN EXISTS (
    SELECT
    FROM step_waits w
    WHERE w.job_id = s.job_id
      AND w.tenant = s.tenant
      AND w.step = s.name
      AND w.outcome IS NULL);
END $$;

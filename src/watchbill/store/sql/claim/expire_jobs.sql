-- Jobs that expire. A job with `expires_at` ends as canceled unless its first handler has started
-- by then. Such a job is in class 1: no node claims it ahead, so it starts when it is claimed.

-- Ends these jobs, which have expired, and returns their number. The caller has locked them.
CREATE OR REPLACE FUNCTION _end_expired_jobs(ids uuid[], t timestamptz)
RETURNS int
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  endings ending[] := ARRAY(
    SELECT ROW(
      j.id, 0, 'canceled', 'canceled', NULL, NULL, NULL,
      jsonb_build_object(
        'kind', 'expired',
        'message', format(
          'it expired: it had not started by %s',
          to_char(j.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"')))
    )::ending
    FROM jobs j
    WHERE j.id = ANY (ids));
BEGIN
  IF cardinality(endings) = 0 THEN RETURN 0; END IF;
  PERFORM _announce_freed(e.freed) FROM _finish_jobs(endings, NULL, t) e;
  RETURN cardinality(endings);
END $$;

-- Ends up to `max` jobs that have expired, the earliest first, and returns when to call it again:
-- when the next one expires, at once if there may be more, or in a second if it had to skip one
-- that is locked. `since` is explained at unblock().
CREATE OR REPLACE FUNCTION _expire_jobs(max int, since timestamptz, t timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  first timestamptz := _find_next_expiry(since);
  n int := 0;
BEGIN
  IF first <= t THEN
    n := _end_expired_jobs(
      ARRAY(
        SELECT j.id
        FROM jobs j
        WHERE j.expires_at <= t
          AND j.expires_at >= since
          AND j.fence = 0
        ORDER BY j.expires_at
        LIMIT max
        FOR UPDATE SKIP LOCKED),
      t);
    first := _find_next_expiry(since);
  END IF;
  RETURN CASE
      WHEN first <= t AND n < max THEN t + interval '1 second'
      ELSE first
    END;
END $$;

-- When the next of the jobs expires that do not run.
CREATE OR REPLACE FUNCTION _find_next_expiry(since timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql STABLE
AS $$
BEGIN
  RETURN (
    SELECT j.expires_at
    FROM jobs j
    WHERE j.expires_at >= since
      AND j.fence = 0
    ORDER BY j.expires_at
    LIMIT 1);
END $$;

-- Ends those of the picked jobs that have expired, and returns the others. The caller has locked
-- them.
CREATE OR REPLACE FUNCTION _leave_out_expired_jobs(jobs picked_job[], t timestamptz)
RETURNS picked_job[]
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  expired uuid[];
  tids tid[];
BEGIN
  SELECT coalesce(array_agg(j.id), '{}'), coalesce(array_agg(j.ctid), '{}') INTO expired, tids
  FROM jobs j
  WHERE j.ctid = ANY (ARRAY(SELECT p.tid FROM unnest(jobs) p))
    AND j.expires_at <= t;
  PERFORM _end_expired_jobs(expired, t);
  RETURN ARRAY(SELECT p FROM unnest(jobs) p WHERE p.tid <> ALL (tids));
END $$;

-- Returns how the jobs have ended for which a step of a running job waits, and stores that as the
-- result of the step: a list of {"id", "state", "result", "error"} in their order. The state of the
-- step is `done`; `waiting` while one of them goes on; NULL if the job has another fence now. Locks
-- the job FOR KEY SHARE.
CREATE OR REPLACE FUNCTION collect_jobs(
  id uuid,
  fence bigint,
  step text,
  seq int,
  now timestamptz DEFAULT NULL,
  OUT state text,
  OUT result jsonb
)
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  j jobs;
  s steps;
  goes_on boolean;
BEGIN
  PERFORM _check_isolation('collect_jobs');
  SELECT * INTO j
  FROM jobs x
  WHERE x.id = id
    AND x.fence = fence
    AND x.fence <> 0
  FOR KEY SHARE;
  IF NOT FOUND THEN RETURN; END IF;
  SELECT * INTO s FROM steps x WHERE x.job_id = id AND x.tenant = j.tenant AND x.name = step;
  state := s.state;
  result := s.result;
  IF s.ended_at IS NOT NULL OR _has_open_wait(s) THEN RETURN; END IF;
  -- In one statement, in which each job is either finished or not: an operator may retry one.
  SELECT
    coalesce(bool_or(EXISTS (
      SELECT FROM jobs x WHERE x.id = w.child AND x.tenant = w.tenant)), false),
    coalesce(
      jsonb_agg(
        jsonb_build_object(
          'id', w.child, 'state', coalesce(f.state, 'gone'), 'result', f.result,
          'error', f.error)
        ORDER BY w.place),
      '[]')
  INTO goes_on, result
  FROM step_waits w
  LEFT JOIN LATERAL (
    SELECT f.state, f.result, f.error
    FROM finished_jobs f
    WHERE f.id = w.child
      AND f.tenant = w.tenant
      AND f.finished_at >= _history_start(w.child)
    LIMIT 1) f ON true
  WHERE w.job_id = id
    AND w.tenant = j.tenant
    AND w.step = step;
  IF goes_on THEN
    result := NULL;
    RETURN;
  END IF;
  state := 'done';
  UPDATE steps x
  SET state = state, seq = seq, fence = fence, run = j.run, ended_at = t, result = result
  WHERE x.job_id = id
    AND x.tenant = j.tenant
    AND x.name = step;
END $$;

-- after: job_cause
-- Says in which steps a suspended job waits, and until when: names the three that end first.
CREATE OR REPLACE FUNCTION _explain_suspended_job(j jobs, t timestamptz)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF NOT _is_suspended(j.wait, j.wait_key) THEN RETURN; END IF;
  RETURN QUERY
    SELECT
      4,
      'suspended',
      format(
        'it sleeps in step %s until %s, in %s', s.name, s.wake_at, _show_distance(s.wake_at, t)),
      s.wake_at,
      s.started_at,
      false,
      ARRAY[format('watchbill jobs wake %s', j.id)],
      jsonb_build_object('step', s.name, 'kind', s.kind)
    FROM steps s
    WHERE s.job_id = j.id
      AND s.tenant = j.tenant
      AND s.ended_at IS NULL
      AND s.wake_at > t
    ORDER BY s.wake_at, s.seq
    LIMIT 3;
END $$;

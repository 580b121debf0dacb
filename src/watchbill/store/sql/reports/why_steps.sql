-- after: job_cause
-- Says in which steps a suspended job waits, and until when: names the three that end first. Then
-- names the oldest unread signal, which perhaps has a wrong name.
CREATE OR REPLACE FUNCTION _explain_suspended_job(j jobs, t timestamptz)
RETURNS SETOF job_cause
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF NOT _is_suspended(j.wait, j.wait_key) THEN RETURN; END IF;
  RETURN QUERY
    SELECT
      4,
      'suspended',
      CASE s.kind
        WHEN 'signal' THEN _describe_signal_wait(s)
        WHEN 'run' THEN _describe_step_retry(s, t)
        WHEN 'jobs' THEN _describe_job_wait_of_step(s)
        ELSE _describe_sleep(s, t)
      END,
      s.wake_at,
      s.started_at,
      s.kind = 'signal',
      ARRAY[
        CASE s.kind
          WHEN 'signal'
            THEN format('watchbill jobs signal %s %s', j.id, _shell_word(s.signals[1]))
          WHEN 'jobs' THEN format('watchbill jobs why %s', _find_open_child(s))
          ELSE format('watchbill jobs wake %s', j.id)
        END],
      jsonb_strip_nulls(jsonb_build_object('step', s.name, 'kind', s.kind, 'signals', s.signals))
    FROM steps s
    WHERE s.job_id = j.id
      AND s.tenant = j.tenant
      AND s.ended_at IS NULL
      AND s.state <> 'begun'
      AND (s.wake_at > t OR s.wake_at IS NULL)
    ORDER BY s.wake_at, s.seq
    LIMIT 3;
  RETURN QUERY
    SELECT
      4,
      'unread_signal',
      format(
        'it has the unread signal %s, sent by %s at %s; no step waits for it',
        g.name, g.sent_by, date_trunc('second', g.at)),
      NULL::timestamptz,
      g.at,
      false,
      ARRAY[format('watchbill jobs steps %s', j.id)],
      jsonb_build_object('signal', g.name, 'sent_by', g.sent_by)
    FROM signals g
    WHERE g.job_id = j.id
      AND g.tenant = j.tenant
      AND g.read_by IS NULL
    ORDER BY g.seq
    LIMIT 1;
END $$;

CREATE OR REPLACE FUNCTION _describe_sleep(s steps, t timestamptz)
RETURNS text
LANGUAGE sql STABLE
RETURN format(
  'it sleeps in step %s until %s, in %s', (s).name, (s).wake_at, _show_distance((s).wake_at, t));

CREATE OR REPLACE FUNCTION _describe_step_retry(s steps, t timestamptz)
RETURNS text
LANGUAGE sql STABLE
RETURN format(
  'step %s failed, %s times until now (%s: %s); its next try is due at %s, in %s', (s).name,
  (s).tries, (s).error->>'type', (s).error->>'message', (s).wake_at,
  _show_distance((s).wake_at, t));

CREATE OR REPLACE FUNCTION _describe_job_wait_of_step(s steps)
RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
  of_all int;
  open int;
BEGIN
  SELECT count(*), count(*) FILTER (WHERE w.outcome IS NULL)
  INTO of_all, open
  FROM step_waits w
  WHERE w.job_id = s.job_id
    AND w.tenant = s.tenant
    AND w.step = s.name;
  RETURN format(
    'it waits in step %s for %s of %s jobs: job %s%s', s.name, open, of_all, _find_open_child(s),
    CASE WHEN open > 1 THEN ', ...' ELSE '' END);
END $$;

-- Returns the first job for which the step waits and that has not ended.
CREATE OR REPLACE FUNCTION _find_open_child(s steps)
RETURNS uuid
LANGUAGE sql STABLE
AS $$
  SELECT w.child
  FROM step_waits w
  WHERE w.job_id = s.job_id
    AND w.tenant = s.tenant
    AND w.step = s.name
    AND w.outcome IS NULL
  ORDER BY w.place
  LIMIT 1
$$;

CREATE OR REPLACE FUNCTION _describe_signal_wait(s steps)
RETURNS text
LANGUAGE sql STABLE
RETURN format(
  'it waits in step %s for the signal %s since %s%s; send it with: watchbill jobs signal %s %s',
  (s).name, array_to_string((s).signals, ' or '), date_trunc('second', (s).started_at),
  coalesce(', until ' || (s).wake_at, ''), (s).job_id, _shell_word((s).signals[1]));

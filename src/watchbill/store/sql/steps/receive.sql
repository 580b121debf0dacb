-- Reads the oldest unread signal of these names for a step of a running job, and stores it as the
-- result of the step. `timeout` begins with the first call for the step. Returns the state of the
-- step:
--   done       `result` is the signal
--   timed_out  no such signal came in time
--   waiting    end the run as `suspended`: a signal or the time-out makes the job ready
-- and NULL if the job has another fence now. A step that is stored stays as it is, so the call may
-- be repeated when its reply was lost. Locks the job FOR KEY SHARE, as save_steps() does. A
-- transaction that is sending a signal keeps the time-out from being stored, because its signal may
-- be committed first.
CREATE OR REPLACE FUNCTION receive(
  id uuid,
  fence bigint,
  step text,
  seq int,
  names text[],
  ask jsonb DEFAULT NULL,
  timeout interval DEFAULT NULL,
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
BEGIN
  PERFORM _check_isolation('receive');
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
  IF s.ended_at IS NOT NULL THEN RETURN; END IF;
  result := _read_signal(j, step, names);
  state := CASE WHEN result IS NULL THEN 'waiting' ELSE 'done' END;
  IF result IS NULL AND coalesce(s.wake_at, t + timeout) <= t THEN
    PERFORM FROM jobs x WHERE x.id = id AND x.fence = fence FOR NO KEY UPDATE SKIP LOCKED;
    IF FOUND THEN
      -- In a new statement, which sees a signal that was committed meanwhile.
      result := _read_signal(j, step, names);
      state := CASE WHEN result IS NULL THEN 'timed_out' ELSE 'done' END;
    END IF;
  END IF;
  INSERT INTO steps AS o (
    job_id, tenant, name, seq, kind, state, fence, run, version, tries, started_at, ended_at,
    wake_at, signals, ask, result)
  VALUES (
    id, j.tenant, step, seq, 'signal', state, fence, j.run, 1, 1, t,
    CASE WHEN state <> 'waiting' THEN t END, t + timeout, names, ask, result)
  ON CONFLICT (job_id, tenant, name) DO UPDATE
  SET seq = EXCLUDED.seq,
    state = EXCLUDED.state,
    fence = EXCLUDED.fence,
    run = EXCLUDED.run,
    ended_at = EXCLUDED.ended_at,
    wake_at = coalesce(o.wake_at, EXCLUDED.wake_at),
    signals = EXCLUDED.signals,
    ask = EXCLUDED.ask,
    result = EXCLUDED.result;
END $$;

-- Marks the oldest unread signal of these names as read by a step, and returns it.
CREATE OR REPLACE FUNCTION _read_signal(j jobs, step text, names text[])
RETURNS jsonb
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  found_signal jsonb;
BEGIN
  UPDATE signals x
  SET read_by = step
  WHERE x.job_id = j.id
    AND x.tenant = j.tenant
    AND x.read_by IS NULL
    AND x.seq = (
      SELECT y.seq
      FROM signals y
      WHERE y.job_id = j.id
        AND y.tenant = j.tenant
        AND y.read_by IS NULL
        AND y.name = ANY (names)
      ORDER BY y.seq
      LIMIT 1)
  RETURNING jsonb_build_object(
    'name', x.name, 'payload', x.payload, 'key', x.key, 'sent_by', x.sent_by, 'sent_at', x.at)
  INTO found_signal;
  RETURN found_signal;
END $$;

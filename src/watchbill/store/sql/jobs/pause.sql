-- Stops the claims of jobs of a queue, of a type, or of a type in a queue, until resume(). Running
-- jobs continue.
CREATE OR REPLACE FUNCTION pause(
  queue text DEFAULT NULL,
  type text DEFAULT NULL,
  reason text DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  t timestamptz := _clock(now);
BEGIN
  PERFORM _check_shared_change('pause');
  IF queue IS NULL AND type IS NULL THEN
    RAISE EXCEPTION 'pause needs a queue or a type'
      USING ERRCODE = 'WB003', HINT = 'give a queue, a type or both';
  ELSIF length(queue) NOT BETWEEN 1 AND 100 OR length(type) NOT BETWEEN 1 AND 200 THEN
    RAISE EXCEPTION 'queue or type is invalid'
      USING ERRCODE = 'WB003', HINT = 'a queue has 1 to 100 characters, a type 1 to 200';
  END IF;
  INSERT INTO pauses (queue, type, reason, by, at)
  VALUES (queue, type, reason, _actor(), t)
  ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM _audit(
    'pause', concat_ws(' ', 'queue ' || queue, 'type ' || type), NULL,
    jsonb_build_object('reason', reason), t);
  PERFORM _silence_backlog(queue, 'paused', t);
  RETURN true;
END $$;

-- Silences alerts about jobs that wait in a queue, because an operator has paused or resumed it;
-- about all queues if it was a type.
CREATE OR REPLACE FUNCTION _silence_backlog(queue text, verb text, t timestamptz)
RETURNS void
LANGUAGE sql VOLATILE AS $$
  SELECT _silence_consequences(
    jsonb_strip_nulls(jsonb_build_object(
      'rule', '["backlog", "oldest", "slow_pickup"]'::jsonb, 'subject', queue)),
    concat_ws(' ', coalesce('queue ' || queue, 'a type'), 'was', verb), t)
$$;

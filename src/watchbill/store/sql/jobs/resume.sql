-- Ends a pause and queues the jobs again that were parked by it. Waits for claims that have read
-- the pause.
CREATE OR REPLACE FUNCTION resume(
  queue text DEFAULT NULL,
  type text DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
BEGIN
  PERFORM _check_shared_change('resume');
  DELETE FROM pauses p
  WHERE p.queue IS NOT DISTINCT FROM queue
    AND p.type IS NOT DISTINCT FROM type;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM _audit('resume', concat_ws(' ', 'queue ' || queue, 'type ' || type), NULL, NULL, t);
  PERFORM _silence_backlog(queue, 'resumed', t);
  PERFORM unpark_paused(now);
  PERFORM _wake_workers(coalesce(queue, ''));
  RETURN true;
END $$;

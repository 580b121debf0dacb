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
#variable_conflict use_column
DECLARE
  t timestamptz := _clock(resume.now);
BEGIN
  PERFORM _check_shared_change('resume');
  DELETE FROM pauses p
  WHERE p.queue IS NOT DISTINCT FROM resume.queue
    AND p.type IS NOT DISTINCT FROM resume.type;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM _audit(
    'resume', concat_ws(' ', 'queue ' || resume.queue, 'type ' || resume.type), NULL, NULL, t);
  PERFORM unpark_paused(resume.now);
  PERFORM _wake_workers(coalesce(resume.queue, ''));
  RETURN true;
END $$;

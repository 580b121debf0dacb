-- Returns those of the jobs that other transactions have locked, and locks the other ones. After a
-- lock timeout in settle() a worker calls this, and then settles the jobs that were not locked.
-- Notes it for the alert `locked_jobs`.
CREATE OR REPLACE FUNCTION locked_jobs(ids uuid[], now timestamptz DEFAULT NULL)
RETURNS SETOF uuid
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  t timestamptz := _clock(now);
  free uuid[] := ARRAY(
    SELECT j.id
    FROM unnest(ids) i(id)
    JOIN jobs j ON j.id = i.id
    FOR UPDATE OF j SKIP LOCKED);
BEGIN
  RETURN QUERY
    SELECT j.id
    FROM unnest(ids) i(id)
    JOIN jobs j ON j.id = i.id
    WHERE j.id <> ALL (free);
  IF FOUND THEN
    PERFORM _note_alert_event(
      'locked_jobs', '(all)', cardinality(ids) - cardinality(free), t);
  END IF;
END $$;

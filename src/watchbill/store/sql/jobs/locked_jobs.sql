-- Returns those of the jobs that other transactions have locked, and locks the other ones. After a
-- lock timeout in settle() a worker calls this, and then settles the jobs that were not locked.
CREATE OR REPLACE FUNCTION locked_jobs(ids uuid[])
RETURNS SETOF uuid
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
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
END $$;

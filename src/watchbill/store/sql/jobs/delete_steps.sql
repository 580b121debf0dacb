-- Deletes the steps and signals of these jobs, of these tenants.
CREATE OR REPLACE FUNCTION _delete_steps(ids uuid[], tenants text[])
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
BEGIN
  DELETE FROM steps s
  WHERE s.job_id = ANY (ids)
    AND (s.job_id, s.tenant) IN (SELECT * FROM unnest(ids, tenants));
  DELETE FROM signals g
  WHERE g.job_id = ANY (ids)
    AND (g.job_id, g.tenant) IN (SELECT * FROM unnest(ids, tenants));
  DELETE FROM step_waits w
  WHERE w.job_id = ANY (ids)
    AND (w.job_id, w.tenant) IN (SELECT * FROM unnest(ids, tenants));
END $$;

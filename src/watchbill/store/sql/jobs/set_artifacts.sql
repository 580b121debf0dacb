-- Records where something is that a running job has made; the view job shows it as artifact_ref.
-- Changes a job only under the fence that it has now. Locks the jobs.
CREATE OR REPLACE FUNCTION _set_artifacts(ids uuid[], fences bigint[], refs text[])
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  UPDATE jobs j
  SET meta = coalesce(j.meta, '{}') || jsonb_build_object('artifact_ref', a.ref)
  FROM unnest(ids, fences, refs) a(id, fence, ref)
  WHERE j.id = a.id
    AND j.fence = a.fence
    AND a.fence <> 0;
END $$;

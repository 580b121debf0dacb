-- Ends a job as succeeded in the caller's transaction, which commits it together with the caller's
-- writes. Raises if the job has another fence now. Locks the job. `artifact_ref` says where
-- something is that the job has made, such as the address of a file.
CREATE OR REPLACE FUNCTION complete(
  id uuid,
  fence bigint,
  result jsonb DEFAULT NULL,
  age float8 DEFAULT NULL,
  artifact_ref text DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  IF artifact_ref IS NOT NULL THEN
    PERFORM _set_artifacts(ARRAY[id], ARRAY[fence], ARRAY[artifact_ref]);
  END IF;
  PERFORM _settle_one(id, fence, 'succeeded', age, NULL, result, NULL, now);
END $$;

-- Ends an attempt as failed, in the caller's transaction. Returns the new state of the job: failed,
-- dead or canceled. Locks the job.
CREATE OR REPLACE FUNCTION fail(
  id uuid,
  fence bigint,
  error jsonb DEFAULT '{}',
  retryable boolean DEFAULT true,
  delay interval DEFAULT NULL,
  age float8 DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS text
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  e jsonb := CASE jsonb_typeof(error)
      WHEN 'object' THEN error
      ELSE jsonb_build_object('message', error #>> '{}')
    END;
BEGIN
  RETURN _settle_one(
    id, fence, 'failed', age, delay, NULL,
    CASE WHEN retryable IS NOT FALSE THEN e ELSE e || '{"kind": "permanent"}' END, now);
END $$;

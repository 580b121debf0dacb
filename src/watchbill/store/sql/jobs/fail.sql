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
  e jsonb := CASE jsonb_typeof(fail.error)
      WHEN 'object' THEN fail.error
      ELSE jsonb_build_object('message', fail.error #>> '{}')
    END;
BEGIN
  RETURN _settle_one(
    fail.id, fail.fence, 'failed', fail.age, fail.delay, NULL,
    CASE WHEN fail.retryable IS NOT FALSE THEN e ELSE e || '{"kind": "permanent"}' END,
    fail.now);
END $$;

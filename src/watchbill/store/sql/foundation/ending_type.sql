-- How one run ended, and the new state of its job: input of _finish_jobs() and _requeue_jobs().
DO $$
BEGIN
  CREATE TYPE ending AS (
    id uuid,
    fence bigint,
    outcome text,
    state text,
    age float8,
    delay interval,
    result jsonb,
    error jsonb);
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;

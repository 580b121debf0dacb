-- after: create_type
-- How one run ended, and the new state of its job: input of _finish_jobs() and _requeue_jobs().
SELECT _create_type('ending', $$
  id uuid,
  fence bigint,
  outcome text,
  state text,
  age float8,
  delay interval,
  result jsonb,
  error jsonb$$);

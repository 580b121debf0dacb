-- Sends a signal to the job that was enqueued with an idempotency key. Returns what signal()
-- returns; NULL if no job has the key. A transaction that enqueues with the key and then calls this
-- starts the job, or signals the one that runs. Locks as signal() does.
CREATE OR REPLACE FUNCTION signal_by_key(
  type text,
  idempotency_key text,
  name text,
  payload jsonb DEFAULT NULL,
  key text DEFAULT NULL,
  tenant text DEFAULT _session_tenant(),
  max_payload int DEFAULT 100000,
  now timestamptz DEFAULT NULL
)
RETURNS text
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  found_id uuid := (
    SELECT i.job_id
    FROM idempotency i
    WHERE i.tenant = tenant
      AND i.type = type
      AND i.key = idempotency_key);
BEGIN
  IF found_id IS NULL THEN RETURN NULL; END IF;
  RETURN _store_signal(found_id, name, payload, key, max_payload, t);
END $$;

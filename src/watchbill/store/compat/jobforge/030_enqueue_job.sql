-- Returns when enqueue() has made a job, from the id that it has drawn: its first 48 bits are
-- milliseconds, and 12 bits after the version number are 4096ths of a millisecond.
CREATE OR REPLACE FUNCTION @facade@.@prefix@_read_creation_time(id uuid)
RETURNS timestamptz
LANGUAGE sql IMMUTABLE
RETURN '1970-01-01 00:00+00'::timestamptz + interval '1 microsecond' * (
  ('x' || encode(substr(uuid_send(id), 1, 6), 'hex'))::bit(48)::bigint * 1000
  + ceil((get_byte(uuid_send(id), 6) % 16 * 256 + get_byte(uuid_send(id), 7)) * 1000 / 4096.0));

-- Enqueues a job into the queue jobforge and returns it. A job that fails runs again after 1, 2, 4
-- ... seconds, at most an hour. A second call with the same tenant, type and key returns the first
-- job.
CREATE OR REPLACE FUNCTION @facade@.@prefix@enqueue_job(
  p_tenant_id text,
  p_type text,
  p_payload jsonb,
  p_idempotency_key text DEFAULT NULL,
  p_run_at timestamptz DEFAULT pg_catalog.now(),
  p_max_attempts int DEFAULT 5
)
RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  t timestamptz; -- when the job was created
  -- The default of p_run_at is the present time. Then `due` is NULL, which means at once, and
  -- enqueue() need not compare times.
  due timestamptz := CASE WHEN p_run_at <> pg_catalog.now() THEN p_run_at END;
  job record;
BEGIN
  IF current_setting('watchbill.tenant', true) <> '' THEN
    PERFORM @facade@.@prefix@_check_tenant(p_tenant_id);
  END IF;
  job := enqueue(
    p_type, p_payload, queue => 'jobforge', run_at => due, tenant => p_tenant_id,
    max_attempts => p_max_attempts, idempotency_key => p_idempotency_key,
    retry => '{"kind": "exponential", "base": 1, "factor": 2, "cap": 3600, "jitter": 0}');
  IF NOT job.created THEN RETURN @facade@.@prefix@_find_job(job.id); END IF;
  t := @facade@.@prefix@_read_creation_time(job.id);
  -- Builds the result from the arguments, because reading the row again would take a third of the
  -- time.
  RETURN '{"status": "queued", "attempts": 0, "locked_at": null, "locked_by": null,
      "heartbeat_at": null, "started_at": null, "finished_at": null, "created_by": null,
      "error": null, "result_id": null}'::jsonb
    || jsonb_build_object(
      'id', job.id, 'tenant_id', p_tenant_id, 'type', p_type, 'payload', p_payload,
      'max_attempts', p_max_attempts, 'run_at', coalesce(due, t),
      'idempotency_key', p_idempotency_key, 'created_at', t, 'updated_at', t);
END $$;

CREATE OR REPLACE FUNCTION @facade@.@prefix@enqueue_job(
  p_tenant_id uuid,
  p_type text,
  p_payload jsonb,
  p_idempotency_key text DEFAULT NULL,
  p_run_at timestamptz DEFAULT pg_catalog.now(),
  p_max_attempts int DEFAULT 5
)
RETURNS jsonb
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  SELECT @facade@.@prefix@enqueue_job(
    p_tenant_id::text, p_type, p_payload, p_idempotency_key, p_run_at, p_max_attempts)
$$;

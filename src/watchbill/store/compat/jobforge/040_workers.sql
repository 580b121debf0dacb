CREATE OR REPLACE FUNCTION @facade@.@prefix@_beat(p_worker_id text, p_processed int DEFAULT 0)
RETURNS bigint
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$ SELECT _renew_facade_worker('jobforge', p_worker_id, p_processed) $$;

-- Returns the fence of a job that a worker holds, and for how many seconds it has held the job;
-- raises if it does not hold it, or if the session acts for another tenant than that of the job.
CREATE OR REPLACE FUNCTION @facade@.@prefix@_held_job(
  p_job_id uuid,
  p_worker_id text,
  OUT fence bigint,
  OUT age float8
)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  held bigint := (
    SELECT j.fence
    FROM jobs j
    WHERE j.id = p_job_id
      AND j.tenant = coalesce(nullif(current_setting('watchbill.tenant', true), ''), j.tenant));
BEGIN
  SELECT r.fence, extract(epoch FROM _clock() - r.claimed_at)
  INTO fence, age
  FROM running_job r
  JOIN nodes n ON n.epoch = r.epoch
  WHERE r.fence = held
    AND r.id = p_job_id
    AND n.name IN (p_worker_id || '@jobforge', p_worker_id)
    AND n.state IN ('active', 'draining');
  IF NOT FOUND THEN
    RAISE EXCEPTION 'worker % does not hold job %', quote_nullable(p_worker_id), p_job_id
      USING ERRCODE = 'WB007', HINT = 'its lease ran out, or the job was released or canceled';
  END IF;
END $$;

-- Claims up to p_limit jobs of the queue jobforge for a worker; with the setting watchbill.tenant,
-- only jobs of that tenant. Registers the worker at its first call. Reclaims the jobs of lost
-- workers first.
CREATE OR REPLACE FUNCTION @facade@.@prefix@claim_jobs(p_worker_id text, p_limit int DEFAULT 10)
RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  t timestamptz := _clock();
  epoch bigint := @facade@.@prefix@_beat(p_worker_id);
  claimed uuid[];
BEGIN
  PERFORM expire_node(b.epoch, b.n)
  FROM beats b
  JOIN nodes n ON n.epoch = b.epoch
  WHERE n.app = 'jobforge'
    AND b.at < t - n.lease;
  PERFORM reclaim();
  claimed := ARRAY(SELECT c.id FROM _claim_for_session(epoch, 'jobforge', p_limit) c);
  RETURN (
    SELECT coalesce(
      jsonb_agg(to_jsonb(v) ORDER BY v.run_at, v.id), '[]')
    FROM @facade@.@prefix@jobs v
    WHERE v.status = 'running'
      AND v.id = ANY (claimed));
END $$;

CREATE OR REPLACE FUNCTION @facade@.@prefix@heartbeat_job(p_job_id uuid, p_worker_id text)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM @facade@.@prefix@_held_job(p_job_id, p_worker_id);
  PERFORM @facade@.@prefix@_beat(p_worker_id);
END $$;

-- Ends an attempt: as succeeded with p_result and p_artifact_ref, or as failed with p_error. A
-- failed job runs again, or is dead after its last attempt.
CREATE OR REPLACE FUNCTION @facade@.@prefix@complete_job(
  p_job_id uuid,
  p_worker_id text,
  p_status text,
  p_error jsonb DEFAULT NULL,
  p_result jsonb DEFAULT NULL,
  p_artifact_ref text DEFAULT NULL
)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  held record;
BEGIN
  SELECT * INTO held FROM @facade@.@prefix@_held_job(p_job_id, p_worker_id);
  IF p_status = 'succeeded' THEN
    PERFORM complete(p_job_id, held.fence, p_result, held.age, p_artifact_ref);
  ELSIF p_status = 'failed' THEN
    PERFORM fail(
      p_job_id, held.fence, coalesce(p_error, '{"message": "failed"}'), age => held.age);
  ELSE
    RAISE EXCEPTION 'status % is invalid', quote_nullable(p_status)
      USING ERRCODE = 'WB003', HINT = 'give succeeded or failed';
  END IF;
  PERFORM @facade@.@prefix@_beat(p_worker_id, 1);
END $$;

-- Shows every job once. Each status is one part of a UNION, so that a query for one status reads
-- only that part; running jobs are found through their claims. A failed job waits for its next
-- attempt, and finished_at is the end of its last one. Blocked jobs are shown as queued. With the
-- setting watchbill.tenant, shows only the jobs of that tenant. FOR UPDATE is refused.
CREATE OR REPLACE VIEW @facade@.@prefix@jobs
WITH (security_invoker = true) AS
SELECT v.*
FROM (
  SELECT
    j.id, j.tenant AS tenant_id, j.type, j.payload, 'running'::text AS status,
    j.attempt + 1 AS attempts, j.max_attempts::int AS max_attempts, j.run_at,
    r.claimed_at AS locked_at, regexp_replace(r.holder, '@jobforge$', '') AS locked_by,
    r.heartbeat_at, coalesce(r.started_at, r.claimed_at) AS started_at,
    NULL::timestamptz AS finished_at, j.idempotency_key, j.created_by, NULL::jsonb AS error,
    NULL::uuid AS result_id, j.created_at, greatest(r.claimed_at, r.seen_at) AS updated_at
  FROM running_job r
  CROSS JOIN LATERAL (
    SELECT x.*
    FROM jobs x
    WHERE x.id = r.id
      AND x.fence = r.fence
    -- OFFSET 0 keeps the planner from reading all jobs first.
    OFFSET 0) j
  WHERE coalesce(nullif(current_setting('watchbill.tenant', true), ''), j.tenant) = j.tenant
  UNION ALL
  SELECT
    j.id, j.tenant, j.type, j.payload, 'queued', j.attempt, j.max_attempts, j.run_at, NULL, NULL,
    NULL, NULL, NULL, j.idempotency_key, j.created_by, NULL, NULL, j.created_at, j.created_at
  FROM jobs j
  WHERE j.fence = 0
    AND NOT j.failed
    AND coalesce(nullif(current_setting('watchbill.tenant', true), ''), j.tenant) = j.tenant
  UNION ALL
  SELECT
    j.id, j.tenant, j.type, j.payload, 'failed', j.attempt, j.max_attempts, j.run_at, NULL, NULL,
    NULL, a.started_at, j.ended_at, j.idempotency_key, j.created_by, a.error, NULL, j.created_at,
    j.ended_at
  FROM jobs j
  LEFT JOIN LATERAL (
    SELECT x.started_at, x.error
    FROM attempts x
    WHERE x.job_id = j.id
      AND x.ended_at = j.ended_at
    ORDER BY x.run DESC
    LIMIT 1) a ON true
  WHERE j.fence = 0
    AND j.failed
    AND coalesce(nullif(current_setting('watchbill.tenant', true), ''), j.tenant) = j.tenant
  UNION ALL
  SELECT
    f.id, f.tenant, f.type, f.payload, 'succeeded', f.attempt, f.max_attempts, f.run_at, NULL, NULL,
    NULL, f.started_at, f.finished_at, f.idempotency_key, f.created_by, NULL,
    CASE WHEN f.result IS NOT NULL OR f.meta ? 'artifact_ref' THEN f.id END,
    f.created_at, f.finished_at
  FROM finished_jobs f
  WHERE f.state = 'succeeded'
    AND coalesce(nullif(current_setting('watchbill.tenant', true), ''), f.tenant) = f.tenant
  UNION ALL
  SELECT
    f.id, f.tenant, f.type, f.payload, 'dead', f.attempt, f.max_attempts, f.run_at, NULL, NULL,
    NULL, f.started_at, f.finished_at, f.idempotency_key, f.created_by, f.error, NULL,
    f.created_at, f.finished_at
  FROM finished_jobs f
  WHERE f.state = 'dead'
    AND coalesce(nullif(current_setting('watchbill.tenant', true), ''), f.tenant) = f.tenant
  UNION ALL
  SELECT
    f.id, f.tenant, f.type, f.payload, 'canceled', f.attempt, f.max_attempts, f.run_at, NULL, NULL,
    NULL, f.started_at, f.finished_at, f.idempotency_key, f.created_by, f.error, NULL,
    f.created_at, f.finished_at
  FROM finished_jobs f
  WHERE f.state = 'canceled'
    AND coalesce(nullif(current_setting('watchbill.tenant', true), ''), f.tenant) = f.tenant) v
CROSS JOIN @facade@.@prefix@claim_jobs_in_place_of_for_update refuse
WHERE refuse.one = 1;

-- Returns one job as JSON, with the columns of the view. Calls functions and reads no table, so
-- that a caller needs no rights on tables.
CREATE OR REPLACE FUNCTION @facade@.@prefix@_find_job(p_job_id uuid)
RETURNS jsonb
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  j job;
  running boolean;
  failed boolean;
BEGIN
  SELECT v.* INTO j FROM job_by_id(p_job_id) v;
  IF NOT FOUND THEN RETURN NULL; END IF;
  running := j.state = 'running';
  failed := j.state = 'failed';
  RETURN jsonb_build_object(
    'id', j.id, 'tenant_id', j.tenant, 'type', j.type, 'payload', j.payload,
    'status', CASE WHEN j.state IN ('blocked', 'suspended') THEN 'queued' ELSE j.state END,
    'attempts', j.attempt + running::int, 'max_attempts', j.max_attempts, 'run_at', j.run_at,
    'locked_at', CASE WHEN running THEN j.claimed_at END,
    'locked_by', CASE WHEN running THEN regexp_replace(j.holder, '@jobforge$', '') END,
    'heartbeat_at', CASE WHEN running THEN j.heartbeat_at END,
    'started_at', CASE
      WHEN running THEN coalesce(j.started_at, j.claimed_at)
      WHEN failed THEN (
        SELECT a.started_at
        FROM job_attempts(p_job_id) a
        ORDER BY a.run DESC
        LIMIT 1)
      ELSE j.started_at
    END,
    'finished_at', CASE WHEN failed THEN j.updated_at ELSE j.finished_at END,
    'idempotency_key', j.idempotency_key, 'created_by', j.created_by,
    'error', CASE WHEN j.state IN ('failed', 'dead', 'canceled') THEN j.error END,
    'result_id', CASE
      WHEN j.state = 'succeeded' AND (j.result IS NOT NULL OR j.artifact_ref IS NOT NULL)
        THEN j.id
    END,
    'created_at', j.created_at,
    'updated_at', CASE
      WHEN j.state IN ('queued', 'blocked', 'suspended') THEN j.created_at
      ELSE j.updated_at
    END);
END $$;

-- Raises if the setting watchbill.tenant names another tenant than this one.
CREATE OR REPLACE FUNCTION @facade@.@prefix@_check_tenant(p_tenant_id text)
RETURNS void
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  IF p_tenant_id
    <> coalesce(nullif(current_setting('watchbill.tenant', true), ''), p_tenant_id) THEN
    RAISE EXCEPTION 'tenant % is not the tenant of this session', quote_literal(p_tenant_id)
      USING ERRCODE = 'insufficient_privilege';
  END IF;
END $$;

CREATE OR REPLACE FUNCTION @facade@.@prefix@_insert_job()
RETURNS trigger
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  IF coalesce(NEW.status, 'queued') <> 'queued' OR coalesce(NEW.attempts, 0) <> 0
    OR num_nonnulls(
      NEW.id, NEW.locked_at, NEW.locked_by, NEW.heartbeat_at, NEW.started_at, NEW.finished_at,
      NEW.error, NEW.result_id) > 0 THEN
    RAISE EXCEPTION 'a new job cannot be given an id, a lock, an error or another status'
      USING ERRCODE = 'WB003', HINT = 'insert tenant_id, type, payload and when to run it';
  END IF;
  NEW := jsonb_populate_record(NEW, @facade@.@prefix@enqueue_job(
    coalesce(NEW.tenant_id, 'default'), NEW.type, coalesce(NEW.payload, '{}'),
    NEW.idempotency_key, coalesce(NEW.run_at, pg_catalog.now()), coalesce(NEW.max_attempts, 5)));
  RETURN NEW;
END $$;

-- Turns an UPDATE of the runbook into an operation: a running job that becomes queued is released;
-- a failed or ended job that becomes queued is rescheduled with all its attempts; an unfinished job
-- that becomes canceled is canceled. A new run_at reschedules a queued job. A new updated_at has no
-- effect.
CREATE OR REPLACE FUNCTION @facade@.@prefix@_change_job()
RETURNS trigger
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  IF (
      NEW.id, NEW.tenant_id, NEW.type, NEW.payload, NEW.max_attempts, NEW.idempotency_key,
      NEW.created_by, NEW.created_at, coalesce(NEW.heartbeat_at, OLD.heartbeat_at),
      coalesce(NEW.locked_at, OLD.locked_at), coalesce(NEW.locked_by, OLD.locked_by),
      coalesce(NEW.started_at, OLD.started_at), coalesce(NEW.finished_at, OLD.finished_at),
      coalesce(NEW.error, OLD.error), coalesce(NEW.result_id, OLD.result_id))
    IS DISTINCT FROM (
      OLD.id, OLD.tenant_id, OLD.type, OLD.payload, OLD.max_attempts, OLD.idempotency_key,
      OLD.created_by, OLD.created_at, OLD.heartbeat_at, OLD.locked_at, OLD.locked_by,
      OLD.started_at, OLD.finished_at, OLD.error, OLD.result_id)
    OR NEW.attempts NOT IN (OLD.attempts, 0)
    OR NEW.attempts <> OLD.attempts AND NEW.status <> 'queued' THEN
    RAISE EXCEPTION 'of job % only status, run_at and attempts = 0 can be changed', OLD.id
      USING ERRCODE = 'WB003', HINT = 'enqueue another job instead';
  END IF;
  IF NEW.status = 'canceled' AND OLD.status IN ('running', 'queued', 'failed') THEN
    PERFORM cancel(OLD.id, force => true);
  ELSIF NEW.status = 'queued' AND OLD.status = 'running' THEN
    PERFORM release(OLD.id);
    IF NEW.run_at > _clock() THEN PERFORM reschedule(OLD.id, NEW.run_at); END IF;
  ELSIF NEW.status = 'queued'
    AND (OLD.status <> 'queued' OR NEW.run_at <> OLD.run_at) THEN
    PERFORM reschedule(OLD.id, NEW.run_at);
  ELSIF NEW.status <> OLD.status OR NEW.run_at <> OLD.run_at THEN
    RAISE EXCEPTION 'job % cannot change from % to %', OLD.id, OLD.status, NEW.status
      USING ERRCODE = 'WB008', HINT = 'set the status to queued or canceled';
  END IF;
  RETURN NEW;
END $$;

-- Deletes a finished job. A failed job has attempts left and stays, with a notice: the runbook
-- deletes old failed jobs together with dead ones, and an error would keep these too.
CREATE OR REPLACE FUNCTION @facade@.@prefix@_delete_job()
RETURNS trigger
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  IF OLD.status = 'failed' THEN
    RAISE NOTICE 'job % has failed and has attempts left, so it is not deleted', OLD.id
      USING HINT = 'cancel it first';
    RETURN NULL;
  ELSIF OLD.status IN ('queued', 'running') THEN
    RAISE EXCEPTION 'job % is %: only finished jobs can be deleted', OLD.id, OLD.status
      USING ERRCODE = 'WB008', HINT = 'cancel it first';
  END IF;
  PERFORM purge(ARRAY[OLD.status], ids => ARRAY[OLD.id]);
  RETURN OLD;
END $$;

CREATE OR REPLACE TRIGGER insert_job
INSTEAD OF INSERT ON @facade@.@prefix@jobs
FOR EACH ROW EXECUTE FUNCTION @facade@.@prefix@_insert_job();
CREATE OR REPLACE TRIGGER change_job
INSTEAD OF UPDATE ON @facade@.@prefix@jobs
FOR EACH ROW EXECUTE FUNCTION @facade@.@prefix@_change_job();
CREATE OR REPLACE TRIGGER delete_job
INSTEAD OF DELETE ON @facade@.@prefix@jobs
FOR EACH ROW EXECUTE FUNCTION @facade@.@prefix@_delete_job();

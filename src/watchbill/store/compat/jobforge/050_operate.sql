-- Returns the state of a job of this tenant; raises if the tenant has no such job.
CREATE OR REPLACE FUNCTION @facade@.@prefix@_state_of(p_job_id uuid, p_tenant_id text)
RETURNS text
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  found_state text;
BEGIN
  PERFORM @facade@.@prefix@_check_tenant(p_tenant_id);
  SELECT j.state
  INTO found_state
  FROM job_by_id(p_job_id) j
  WHERE j.tenant = p_tenant_id;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'tenant % has no job %', quote_nullable(p_tenant_id), p_job_id
      USING ERRCODE = 'no_data_found';
  END IF;
  RETURN found_state;
END $$;

-- Cancels an unfinished job. The handler of a running job is asked to stop, and its result is
-- rejected.
CREATE OR REPLACE FUNCTION @facade@.@prefix@cancel_job(p_job_id uuid, p_tenant_id text)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  state text := @facade@.@prefix@_state_of(p_job_id, p_tenant_id);
BEGIN
  IF state IN ('succeeded', 'dead', 'canceled') THEN
    RAISE EXCEPTION 'job % is % and cannot be canceled', p_job_id, state
      USING ERRCODE = 'WB008';
  END IF;
  PERFORM cancel(p_job_id, force => true);
END $$;

CREATE OR REPLACE FUNCTION @facade@.@prefix@cancel_job(p_job_id uuid, p_tenant_id uuid)
RETURNS void
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$ SELECT @facade@.@prefix@cancel_job(p_job_id, p_tenant_id::text) $$;

-- Sets when a queued job runs. Queues a failed or dead job again, with all its attempts.
CREATE OR REPLACE FUNCTION @facade@.@prefix@reschedule_job(
  p_job_id uuid,
  p_tenant_id text,
  p_run_at timestamptz
)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  state text := @facade@.@prefix@_state_of(p_job_id, p_tenant_id);
BEGIN
  IF state IN ('running', 'succeeded', 'canceled') THEN
    RAISE EXCEPTION 'job % is % and cannot be rescheduled', p_job_id, state
      USING ERRCODE = 'WB008';
  END IF;
  PERFORM reschedule(p_job_id, p_run_at);
END $$;

CREATE OR REPLACE FUNCTION @facade@.@prefix@reschedule_job(
  p_job_id uuid,
  p_tenant_id uuid,
  p_run_at timestamptz
)
RETURNS void
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$ SELECT @facade@.@prefix@reschedule_job(p_job_id, p_tenant_id::text, p_run_at) $$;

-- Returns the jobs of a tenant, newest first, as JSON. p_filters may contain status, type, limit
-- (50, at most 1000) and offset.
CREATE OR REPLACE FUNCTION @facade@.@prefix@list_jobs(
  p_tenant_id text,
  p_filters jsonb DEFAULT '{}'
)
RETURNS jsonb
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  wanted text := p_filters->>'status';
  skipped int := coalesce((p_filters->>'offset')::int, 0);
  most int := least(coalesce((p_filters->>'limit')::int, 50), 1000);
  unknown text := (
    SELECT min(k)
    FROM jsonb_object_keys(p_filters) k
    WHERE k NOT IN ('status', 'type', 'limit', 'offset'));
BEGIN
  PERFORM @facade@.@prefix@_check_tenant(p_tenant_id);
  IF unknown IS NOT NULL THEN
    RAISE EXCEPTION 'there is no filter %', quote_literal(unknown)
      USING ERRCODE = 'WB003', HINT = 'the filters are status, type, limit and offset';
  END IF;
  RETURN (
    SELECT coalesce(jsonb_agg(@facade@.@prefix@_find_job(p.id) ORDER BY p.id DESC), '[]')
    FROM (
      SELECT l.id
      FROM job_list(
        CASE
          WHEN wanted = 'queued' THEN '{queued,blocked,suspended}'::text[]
          WHEN wanted IS NOT NULL THEN ARRAY[wanted]
        END,
        type => p_filters->>'type', tenant => p_tenant_id, max => skipped + most) l
      ORDER BY l.id DESC
      OFFSET skipped) p);
END $$;

CREATE OR REPLACE FUNCTION @facade@.@prefix@list_jobs(
  p_tenant_id uuid,
  p_filters jsonb DEFAULT '{}'
)
RETURNS jsonb
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$ SELECT @facade@.@prefix@list_jobs(p_tenant_id::text, p_filters) $$;

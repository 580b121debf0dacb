-- Shows jobs of schedules that wait or run. SELECT ... FOR UPDATE locks the jobs, so that no worker
-- claims them.
CREATE OR REPLACE VIEW @facade@.@prefix@job_queue
WITH (security_invoker = true) AS
SELECT
  j.seq AS id,
  j.schedule_id::int AS job_id,
  coalesce(j.slot, j.created_at) AS scheduled_for,
  j.priority::int AS priority,
  (
    SELECT regexp_replace(r.holder, '@jcron$', '')
    FROM running_job r
    WHERE r.fence = j.fence
      AND r.id = j.id)::varchar AS worker_id,
  (
    SELECT r.claimed_at
    FROM running_job r
    WHERE r.fence = j.fence
      AND r.id = j.id) AS claimed_at,
  CASE WHEN j.fence <> 0 THEN 'running' ELSE 'pending' END::varchar AS status,
  j.created_at
FROM jobs j
WHERE j.schedule_id IS NOT NULL
  AND j.tenant = _session_tenant();

-- Refuses changes through the view. Without this trigger PostgreSQL would apply them to Watchbill's
-- own tables, because a simple view is updatable.
CREATE OR REPLACE FUNCTION @facade@.@prefix@_jcron_refuse_change()
RETURNS trigger
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  RAISE EXCEPTION '% cannot be changed', TG_TABLE_NAME
    USING ERRCODE = 'WB003', HINT = TG_ARGV[0];
END $$;

CREATE OR REPLACE TRIGGER refuse_change
INSTEAD OF INSERT OR UPDATE OR DELETE ON @facade@.@prefix@job_queue
FOR EACH ROW EXECUTE FUNCTION @facade@.@prefix@_jcron_refuse_change(
  'call enqueue_due_jobs, claim_next_job, complete_job or fail_job');

-- Makes the jobs of all schedules of the session's tenant that are due, one for each slot, and
-- returns how many.
CREATE OR REPLACE FUNCTION @facade@.@prefix@enqueue_due_jobs()
RETURNS int
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  t timestamptz := _clock();
  total int := 0;
  next_at timestamptz;
  made int;
BEGIN
  LOOP
    SELECT x.fired, x.next_at INTO made, next_at
    FROM tick(for_tenant => _session_tenant()) x;
    total := total + made;
    -- If a tick has made no job although timers are due, another session has locked them, or they
    -- still have older slots.
    EXIT WHEN made = 0 OR next_at > t OR next_at IS NULL;
  END LOOP;
  RETURN total;
END $$;

-- Claims one job for a worker, among the jobs of the session's tenant that have no SQL command: the
-- job with the highest priority, and among these the earliest. Registers the worker at its first
-- call.
CREATE OR REPLACE FUNCTION @facade@.@prefix@claim_next_job(p_worker_id varchar)
RETURNS TABLE (queue_id bigint, job_id int, job_name varchar, cron_pattern varchar)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  epoch bigint := @facade@.@prefix@_jcron_beat(p_worker_id);
BEGIN
  RETURN QUERY
    SELECT j.seq, j.schedule_id::int, s.name::varchar, s.pattern::varchar
    FROM _claim_for_session(epoch, 'jcron', 1, '{watchbill.sql}', _session_tenant()) c
    JOIN jobs j ON j.id = c.id
    LEFT JOIN schedules s ON s.id = j.schedule_id;
END $$;

-- Returns the id and the fence of a job that a worker holds, and for how many seconds it has held
-- the job.
CREATE OR REPLACE FUNCTION @facade@.@prefix@_jcron_held_job(
  p_queue_id bigint,
  p_worker_id varchar,
  OUT id uuid,
  OUT fence bigint,
  OUT age float8
)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  held_by bigint[] := ARRAY(
    SELECT n.epoch
    FROM nodes n
    WHERE n.name IN (p_worker_id || '@jcron', p_worker_id)
      AND n.state IN ('active', 'draining'));
BEGIN
  SELECT r.id, r.fence, extract(epoch FROM _clock() - r.claimed_at)
  INTO id, fence, age
  FROM running_job r
  JOIN jobs j ON j.id = r.id
  WHERE r.epoch = ANY (held_by)
    AND j.seq = p_queue_id
    AND j.tenant = _session_tenant();
END $$;

-- Ends a job that the worker has claimed. Returns false if the worker does not hold the job any
-- more.
CREATE OR REPLACE FUNCTION @facade@.@prefix@complete_job(
  p_queue_id bigint,
  p_worker_id varchar,
  p_output text DEFAULT NULL
)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  held record;
BEGIN
  SELECT * INTO held FROM @facade@.@prefix@_jcron_held_job(p_queue_id, p_worker_id);
  IF held.id IS NULL THEN RETURN false; END IF;
  PERFORM complete(
    held.id, held.fence,
    CASE WHEN p_output IS NOT NULL THEN jsonb_build_object('output', p_output) END, held.age);
  PERFORM @facade@.@prefix@_jcron_beat(p_worker_id, 1);
  RETURN true;
END $$;

-- Ends an attempt that failed: the job runs again, or is dead after its last attempt. Returns false
-- if the worker does not hold the job any more.
CREATE OR REPLACE FUNCTION @facade@.@prefix@fail_job(
  p_queue_id bigint,
  p_worker_id varchar,
  p_error text
)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  held record;
BEGIN
  SELECT * INTO held FROM @facade@.@prefix@_jcron_held_job(p_queue_id, p_worker_id);
  IF held.id IS NULL THEN RETURN false; END IF;
  PERFORM fail(
    held.id, held.fence, jsonb_build_object('message', coalesce(p_error, 'failed')),
    age => held.age);
  PERFORM @facade@.@prefix@_jcron_beat(p_worker_id, 1);
  RETURN true;
END $$;

-- Shows the newest registration of each worker. If another node has the id of a worker of jcron as
-- its name, shows the worker.
CREATE OR REPLACE VIEW @facade@.@prefix@worker_heartbeat
WITH (security_invoker = true) AS
SELECT DISTINCT ON (regexp_replace(n.name, '@jcron$', ''))
  regexp_replace(n.name, '@jcron$', '')::varchar AS worker_id,
  n.host::varchar AS hostname,
  coalesce(b.at, n.ended_at) AS last_heartbeat,
  coalesce(b.processed, n.processed)::int AS jobs_processed,
  CASE n.state
    WHEN 'lost' THEN 'dead'
    WHEN 'left' THEN 'left'
    ELSE 'active'
  END::varchar AS status
FROM nodes n
LEFT JOIN beats b ON b.epoch = n.epoch
ORDER BY regexp_replace(n.name, '@jcron$', ''), n.name LIKE '%@jcron' DESC, n.epoch DESC;

CREATE OR REPLACE FUNCTION @facade@.@prefix@_jcron_beat(
  p_worker_id varchar,
  p_processed int DEFAULT 0
)
RETURNS bigint
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$ SELECT _renew_facade_worker('jcron', p_worker_id, p_processed, '{"jcron.job": 1}') $$;

CREATE OR REPLACE FUNCTION @facade@.@prefix@update_heartbeat(p_worker_id varchar)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM @facade@.@prefix@_jcron_beat(p_worker_id);
END $$;

-- Declares workers of this facade lost that were silent for five minutes, and returns how many.
-- Releases the locks of lost workers. Does not touch Watchbill's own nodes, which watch each other.
-- Locks beats, nodes and locks; leaves locked nodes for the next call.
CREATE OR REPLACE FUNCTION @facade@.@prefix@cleanup_dead_workers()
RETURNS int
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  t timestamptz := _clock();
  expired int;
BEGIN
  SELECT count(*)
  INTO expired
  FROM beats b
  JOIN nodes n ON n.epoch = b.epoch
  WHERE n.app = 'jcron'
    AND b.at < t - n.lease
    AND expire_node(b.epoch, b.n);
  PERFORM @facade@.@prefix@release_distributed_lock(l.job_id, l.worker_id)
  FROM @facade@.@prefix@job_locks l
  JOIN @facade@.@prefix@worker_heartbeat w USING (worker_id)
  WHERE w.status = 'dead';
  RETURN expired;
END $$;

-- Queues the jobs of lost workers again, and returns how many.
CREATE OR REPLACE FUNCTION @facade@.@prefix@reassign_orphaned_jobs()
RETURNS int
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$ SELECT count(*)::int FROM reclaim() $$;

-- Returns which of n workers, counted from 0, has a job. Each worker gets a number from a hash for
-- this job, and the highest number wins. So a change of n moves as few jobs as possible.
CREATE OR REPLACE FUNCTION @facade@.@prefix@get_worker_for_job(p_job_id int, p_worker_count int)
RETURNS int
LANGUAGE plpgsql IMMUTABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  IF p_worker_count < 1 THEN
    RAISE EXCEPTION 'p_worker_count % is invalid', p_worker_count
      USING ERRCODE = 'WB003', HINT = 'give the number of workers, 1 or more';
  END IF;
  RETURN (
    SELECT w
    FROM generate_series(0, p_worker_count - 1) w
    ORDER BY md5(p_job_id || ' ' || w) DESC
    LIMIT 1);
END $$;

-- Returns the due jobs of one worker, as get_due_jobs() does for all workers.
CREATE OR REPLACE FUNCTION @facade@.@prefix@get_jobs_for_worker(
  p_worker_id int,
  p_worker_count int
)
RETURNS TABLE (id int, name varchar, cron_pattern varchar)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  t timestamptz := _clock();
BEGIN
  RETURN QUERY
    SELECT s.id::int, s.name::varchar, s.pattern::varchar
    FROM timers x
    JOIN schedules s ON s.id = x.schedule_id
    WHERE x.next_run <= t
      AND s.enabled
      AND s.tenant = _session_tenant()
      AND @facade@.@prefix@get_worker_for_job(s.id::int, p_worker_count) = p_worker_id
    ORDER BY x.next_run
    FOR UPDATE OF x SKIP LOCKED;
END $$;

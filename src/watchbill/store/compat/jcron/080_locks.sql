-- Shows the locks of jobs, which are named locks of Watchbill. The guide adds the column
-- fence_token in its section Split-Brain Prevention. An expired lock keeps its holder until another
-- worker acquires it.
CREATE OR REPLACE VIEW @facade@.@prefix@job_locks
WITH (security_invoker = true) AS
SELECT
  j.id AS job_id,
  l.holder::varchar AS worker_id,
  l.acquired_at AS locked_at,
  l.expires_at,
  l.fence AS fence_token
FROM locks l
-- A name that begins like the names of this facade and does not end with an id belongs to another
-- tenant, such as a/1 beside a, or to another program.
CROSS JOIN LATERAL (
  SELECT substr(l.name, length('jcron/' || _session_tenant() || '/') + 1) AS text) n
CROSS JOIN LATERAL (
  SELECT CASE
    WHEN n.text !~ '^(0|-?[1-9][0-9]{0,9})$' THEN NULL
    WHEN n.text::bigint BETWEEN -2147483648 AND 2147483647 THEN n.text::int
  END AS id) j
WHERE starts_with(l.name, 'jcron/' || _session_tenant() || '/')
  AND l.holder IS NOT NULL
  AND j.id IS NOT NULL;

CREATE OR REPLACE FUNCTION @facade@.@prefix@_jcron_lock_name(p_job_id int)
RETURNS text
LANGUAGE sql STABLE
RETURN 'jcron/' || _session_tenant() || '/' || p_job_id;

-- Tries once to acquire the lock of a job, and returns whether the worker has the lock now. Call
-- this in a transaction of its own, because others see the lock when the transaction commits.
CREATE OR REPLACE FUNCTION @facade@.@prefix@acquire_distributed_lock(
  p_job_id int,
  p_worker_id varchar,
  p_lock_duration interval DEFAULT '5 minutes'
)
RETURNS boolean
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  SELECT lock_acquire(
    @facade@.@prefix@_jcron_lock_name(p_job_id), p_lock_duration, p_worker_id) IS NOT NULL
$$;

-- Releases the lock of a job if the worker holds it.
CREATE OR REPLACE FUNCTION @facade@.@prefix@release_distributed_lock(
  p_job_id int,
  p_worker_id varchar
)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM lock_release(l.name, l.fence)
  FROM locks l
  WHERE l.name = @facade@.@prefix@_jcron_lock_name(p_job_id)
    AND l.holder = p_worker_id;
END $$;

-- Returns whether the worker still has the lock under this token. If so, no other worker gets the
-- lock until the caller's transaction ends. Locks the lock's row FOR KEY SHARE.
CREATE OR REPLACE FUNCTION @facade@.@prefix@validate_fence_token(
  p_job_id int,
  p_worker_id varchar,
  p_fence_token bigint
)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM lock_check(@facade@.@prefix@_jcron_lock_name(p_job_id), p_fence_token);
  RETURN EXISTS (
    SELECT
    FROM locks l
    WHERE l.name = @facade@.@prefix@_jcron_lock_name(p_job_id)
      AND l.holder = p_worker_id);
EXCEPTION WHEN SQLSTATE 'WB012' THEN
  RETURN false;
END $$;

CREATE OR REPLACE TRIGGER refuse_change
INSTEAD OF INSERT OR UPDATE ON @facade@.@prefix@job_locks
FOR EACH ROW EXECUTE FUNCTION @facade@.@prefix@_jcron_refuse_change(
  'call acquire_distributed_lock');

-- Releases a lock whose row is deleted from the view. The fence of its next grant is still greater.
CREATE OR REPLACE FUNCTION @facade@.@prefix@_jcron_release_lock()
RETURNS trigger
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM lock_release(@facade@.@prefix@_jcron_lock_name(OLD.job_id), OLD.fence_token);
  RETURN OLD;
END $$;

CREATE OR REPLACE TRIGGER release_lock
INSTEAD OF DELETE ON @facade@.@prefix@job_locks
FOR EACH ROW EXECUTE FUNCTION @facade@.@prefix@_jcron_release_lock();

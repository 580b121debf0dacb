-- Shows the results of jobs that have succeeded. A result has the id of its job.
CREATE OR REPLACE VIEW @facade@.@prefix@job_results
WITH (security_invoker = true) AS
SELECT
  f.id, f.id AS job_id, f.tenant AS tenant_id, coalesce(f.result, '{}') AS result,
  f.meta->>'artifact_ref' AS artifact_ref, f.finished_at AS created_at
FROM finished_jobs f
WHERE f.state = 'succeeded'
  AND (f.result IS NOT NULL OR f.meta ? 'artifact_ref')
  AND coalesce(nullif(current_setting('watchbill.tenant', true), ''), f.tenant) = f.tenant;

-- Refuses changes through the view. Without this trigger PostgreSQL would apply them to Watchbill's
-- own tables, because a simple view is updatable.
CREATE OR REPLACE FUNCTION @facade@.@prefix@_refuse_change()
RETURNS trigger
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  RAISE EXCEPTION '% cannot be changed', TG_TABLE_NAME
    USING ERRCODE = 'WB003', HINT = TG_ARGV[0];
END $$;

CREATE OR REPLACE TRIGGER refuse_change
INSTEAD OF INSERT OR UPDATE OR DELETE ON @facade@.@prefix@job_results
FOR EACH ROW EXECUTE FUNCTION @facade@.@prefix@_refuse_change(
  'a result belongs to its job: complete the job, or delete it');

-- Shows every attempt that has ended, with the time at which that attempt started.
CREATE OR REPLACE VIEW @facade@.@prefix@job_attempts
WITH (security_invoker = true) AS
SELECT
  md5(a.job_id || ' ' || a.run)::uuid AS id, a.job_id, a.tenant AS tenant_id,
  greatest(a.attempt, 1)::int AS attempt_no, a.started_at, a.ended_at AS finished_at, a.error,
  coalesce(a.started_at, a.ended_at) AS created_at
FROM attempt a
CROSS JOIN @facade@.@prefix@claim_jobs_in_place_of_for_update refuse
WHERE refuse.one = 1
  AND a.outcome IN ('succeeded', 'skipped', 'failed', 'timed_out', 'canceled', 'lost')
  AND coalesce(nullif(current_setting('watchbill.tenant', true), ''), a.tenant) = a.tenant;

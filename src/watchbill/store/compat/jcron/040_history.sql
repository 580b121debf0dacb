-- Shows the runs of scheduled jobs: one row for the end of each slot, and one row for each failed
-- attempt before it. The guide's table has no columns run_id and attempt; they name the job and its
-- attempt in Watchbill.
CREATE OR REPLACE VIEW @facade@.@prefix@job_execution_history
WITH (security_invoker = true) AS
SELECT
  hashtextextended(
    concat_ws(' ', h.job_id, h.run_id, h.attempt, extract(epoch FROM h.scheduled_time)), 0)
    & 9223372036854775807 AS id,
  h.job_id::int AS job_id,
  h.scheduled_time,
  h.actual_start_time,
  h.actual_end_time,
  round(extract(epoch FROM h.actual_end_time - h.actual_start_time) * 1000, 3)
    AS execution_duration_ms,
  CASE
    WHEN h.outcome IN ('succeeded', 'fired') THEN 'SUCCESS'
    WHEN h.outcome IN ('failed', 'lost') THEN 'FAILED'
    WHEN h.outcome = 'timed_out' THEN 'TIMEOUT'
    ELSE 'SKIPPED'
  END::varchar AS status,
  h.error_message,
  coalesce(h.result->>'output', h.result::text) AS output,
  regexp_replace(h.executed_by, '@jcron$', '')::varchar AS executed_by,
  h.server_name::varchar AS server_name,
  h.created_at,
  h.run_id,
  h.attempt
FROM (
  SELECT
    l.schedule_id AS job_id, l.slot AS scheduled_time, l.started_at AS actual_start_time,
    l.finished_at AS actual_end_time, l.outcome, coalesce(l.error, l.reason) AS error_message,
    l.result, l.node AS executed_by, l.host AS server_name,
    coalesce(l.finished_at, l.fired_at) AS created_at, l.job_id AS run_id, l.attempt::int
  FROM slot l
  WHERE l.outcome IS NOT NULL
    AND l.tenant = _session_tenant()
  UNION ALL
  SELECT
    l.schedule_id, l.slot, a.started_at, a.ended_at, a.outcome, a.error->>'message', NULL,
    coalesce(n.name, l.executor), coalesce(n.host, l.host), a.ended_at, a.job_id, a.attempt
  FROM schedules s
  JOIN slots l ON l.schedule_id = s.id
  JOIN attempts a ON a.job_id = l.job_id AND a.ended_at IS DISTINCT FROM l.finished_at
  LEFT JOIN nodes n ON n.epoch = a.epoch
  WHERE a.outcome IN ('failed', 'timed_out', 'lost')
    AND s.tenant = _session_tenant()) h
CROSS JOIN @facade@.@prefix@claim_next_job_in_place_of_for_update refuse
WHERE refuse.one = 1;

-- Deletes an attempt or a slot of the history; the counts of the job stay. The counts of a slot
-- that has ended are in the slot, or in pruned_slot_counts; those of an open slot come from its
-- attempts.
CREATE OR REPLACE FUNCTION @facade@.@prefix@_jcron_delete_history()
RETURNS trigger
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  DELETE FROM attempts a
  WHERE a.job_id = OLD.run_id
    AND a.ended_at = OLD.actual_end_time
    AND a.attempt = OLD.attempt;
  IF FOUND THEN
    UPDATE slots l
    SET failed_attempts = coalesce(l.failed_attempts, 0) + 1
    WHERE l.schedule_id = OLD.job_id
      AND l.slot = OLD.scheduled_time
      AND l.job_id = OLD.run_id
      AND l.outcome IS NULL;
  END IF;
  PERFORM _delete_slot(OLD.job_id, OLD.scheduled_time, OLD.run_id)
  WHERE NOT EXISTS (
    SELECT
    FROM slots l
    WHERE l.schedule_id = OLD.job_id
      AND l.slot = OLD.scheduled_time
      AND l.job_id = OLD.run_id
      AND l.finished_at IS DISTINCT FROM OLD.actual_end_time);
  RETURN OLD;
END $$;

CREATE OR REPLACE TRIGGER delete_history
INSTEAD OF DELETE ON @facade@.@prefix@job_execution_history
FOR EACH ROW EXECUTE FUNCTION @facade@.@prefix@_jcron_delete_history();

-- Writes the outcomes of slots whose jobs this transaction has moved to the history.
CREATE OR REPLACE FUNCTION _close_slots(ids uuid[], t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  UPDATE slots s
  SET outcome = CASE f.state
      WHEN 'succeeded' THEN coalesce(f.outcome, 'succeeded')
      WHEN 'canceled' THEN 'canceled'
      ELSE coalesce(f.outcome, 'failed')
    END,
    finished_at = f.finished_at,
    started_at = coalesce(s.started_at, f.started_at),
    epoch = f.epoch,
    error = left(f.error->>'message', 1000),
    -- A function, because few jobs run again, and a subquery would open all partitions of attempts
    -- for every job.
    failed_attempts = CASE
      WHEN f.run > 1 THEN nullif(
        coalesce(s.failed_attempts, 0) + _count_failed_runs(f.id, f.run, f.created_at), 0)
    END,
    reason = CASE WHEN f.outcome = 'skipped' THEN left(f.error->>'message', 1000) END
  FROM finished_jobs f
  WHERE f.id = ANY (ids)
    AND f.finished_at = t
    AND s.schedule_id = f.schedule_id
    AND s.slot = coalesce(f.slot, f.created_at)
    AND s.job_id = f.id;
END $$;

-- Resets the slot of a job that runs again. The job that starts a chain resets the slot of the
-- chain, unless the chain is running.
CREATE OR REPLACE FUNCTION _reopen_slot(schedule_id bigint, slot timestamptz, job_id uuid)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  UPDATE slots s
  SET job_id = _reopen_slot.job_id,
    outcome = NULL,
    finished_at = NULL,
    epoch = NULL,
    error = NULL,
    reason = NULL,
    failed_attempts = NULL,
    -- The job that ends a chain keeps the start time of the chain: that of its first step.
    started_at = (
      SELECT s.started_at
      FROM jobs j
      WHERE j.id = job_id
        AND j.type = 'watchbill.flow_end')
  WHERE s.schedule_id = schedule_id
    AND s.slot = slot
    AND (
      s.job_id = job_id
      OR s.outcome IS NOT NULL
        AND s.job_id IS NOT NULL
        AND EXISTS (
          SELECT FROM jobs j WHERE j.id = job_id AND j.type = 'watchbill.flow'));
END $$;

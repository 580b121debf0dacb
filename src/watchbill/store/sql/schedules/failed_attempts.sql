-- Counts the runs of all jobs of a schedule that failed and were followed by another run, or will
-- be: also for slots that have ended, and for those that were pruned. With the slots that ended
-- with a failure, these are all failures of the schedule. A facade asks for it.
CREATE OR REPLACE FUNCTION _count_failed_attempts(schedule_id bigint)
RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
BEGIN
  RETURN
    coalesce((
      SELECT sum(s.failed_attempts)
      FROM slots s
      WHERE s.schedule_id = schedule_id
        AND s.failed_attempts > 0), 0)
    + coalesce((
      SELECT sum(_count_failed_runs(j.id, j.run + 1, j.created_at))
      FROM slots s
      JOIN jobs j ON j.id = s.job_id
      WHERE s.schedule_id = schedule_id
        AND s.outcome IS NULL
        AND s.job_id IS NOT NULL
        AND j.run > 0), 0)
    -- Row security filters schedules, and not the table of counts.
    + coalesce((
      SELECT y.failed_attempts
      FROM pruned_slot_counts y
      JOIN schedules s ON s.id = y.schedule_id
      WHERE y.schedule_id = schedule_id), 0);
END $$;

-- Counts the runs of a job before `run` that failed. `since` is when the job was made: no older
-- partition of attempts is read.
CREATE OR REPLACE FUNCTION _count_failed_runs(job_id uuid, run int, since timestamptz)
RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
BEGIN
  RETURN (
    SELECT count(*)
    FROM attempts a
    WHERE a.job_id = job_id
      AND a.run < run
      AND a.ended_at >= since
      AND a.outcome IN ('failed', 'timed_out', 'lost'));
END $$;

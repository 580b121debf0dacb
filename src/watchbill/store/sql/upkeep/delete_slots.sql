-- Deletes one slot that has ended from the history of a schedule: the slot of the job `job_id`, or
-- a slot without a job. Adds it to pruned_slot_counts, so that the counts of the schedule do not
-- change.
CREATE OR REPLACE FUNCTION _delete_slot(schedule_id bigint, slot timestamptz, job_id uuid)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  WITH deleted AS (
    DELETE FROM slots s
    WHERE s.schedule_id = schedule_id
      AND s.slot = slot
      AND s.job_id IS NOT DISTINCT FROM job_id
      AND s.outcome IS NOT NULL
    RETURNING s.*)
  INSERT INTO pruned_slot_counts AS y (
    schedule_id, failures, unsuccessful, skips, missed, failed_attempts)
  SELECT
    d.schedule_id,
    (d.outcome IN ('failed', 'timed_out', 'lost'))::int,
    (d.job_id IS NOT NULL AND d.outcome <> 'succeeded')::int,
    (d.outcome = 'skipped')::int,
    CASE WHEN d.outcome = 'missed' THEN d.count ELSE 0 END,
    coalesce(d.failed_attempts, 0)
  FROM deleted d
  WHERE d.outcome <> 'succeeded'
    OR d.failed_attempts > 0
  ON CONFLICT ON CONSTRAINT pruned_slot_counts_pkey DO UPDATE
  SET failures = y.failures + EXCLUDED.failures,
    unsuccessful = y.unsuccessful + EXCLUDED.unsuccessful,
    skips = y.skips + EXCLUDED.skips,
    missed = y.missed + EXCLUDED.missed,
    failed_attempts = y.failed_attempts + EXCLUDED.failed_attempts;
END $$;

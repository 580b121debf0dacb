-- Shows slots whose deadline has passed, until the slot or a later one ends.
CREATE OR REPLACE VIEW overdue AS
SELECT
  o.schedule_id, s.name, s.tenant, o.slot, o.kind, o.due_by, o.overdue_at, o.job_id, o.outcome
FROM slots o
JOIN schedules s ON s.id = o.schedule_id
WHERE o.overdue_at IS NOT NULL
  AND o.finished_at IS NULL
  AND NOT EXISTS (
    SELECT
    FROM slots l
    WHERE l.schedule_id = o.schedule_id
      AND l.slot > o.slot
      AND l.finished_at IS NOT NULL);

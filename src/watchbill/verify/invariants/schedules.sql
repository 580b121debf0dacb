-- Invariants of schedules, timers and slots.

-- name: schedule_has_timer
-- kind: S
-- says: a schedule has a timer, and a timer a schedule
SELECT
  'schedule ' || coalesce(s.name, t.schedule_id::text),
  CASE
    WHEN s.id IS NULL THEN 'its timer is left, and the schedule is gone'
    ELSE 'it has no timer, so it never fires'
  END
FROM {schema}.schedules s
FULL JOIN {schema}.timers t ON t.schedule_id = s.id
WHERE s.id IS NULL
  OR t.schedule_id IS NULL

-- name: stored_schedule_is_valid
-- kind: E
-- scans: schedules
-- says: the checks of this release accept every schedule, with its pattern
SELECT 'schedule ' || x.name, e.error, x.xmin::text || x.ctid
FROM {table} x
CROSS JOIN LATERAL {schema}._find_stored_error(x) e(error)
WHERE {part}
  AND e.error IS NOT NULL

-- name: timer_is_ahead
-- kind: S
-- says: the next run of a schedule is after its last slot
SELECT
  'schedule ' || coalesce(s.name, t.schedule_id::text),
  format('its next run is %s, and its last slot %s', t.next_run, t.last_slot)
FROM {schema}.timers t
LEFT JOIN {schema}.schedules s ON s.id = t.schedule_id
WHERE t.next_run <= t.last_slot

-- name: slot_is_open_while_its_job_is
-- kind: S
-- scans: slots by job_id
-- says: a slot is open exactly while its job is
SELECT
  'slot ' || x.slot || ' of schedule ' || x.schedule_id,
  CASE
    WHEN j.id IS NULL THEN format('it is open, and its job %s is not', x.job_id)
    ELSE format('it has ended as %s, and its job %s has not', x.outcome, x.job_id)
  END
FROM {table} x
LEFT JOIN {schema}.jobs j ON j.id = x.job_id
WHERE {part}
  AND x.job_id IS NOT NULL
  AND (x.outcome IS NULL) IS DISTINCT FROM (j.id IS NOT NULL)

-- Counts jobs and slots of a schedule for the view `schedule`. The end of a job updates no counter:
-- timers has the number of all jobs, and the slots that did not succeed are few and have an index.
-- `failed_attempts` counts the attempts of jobs that failed and run again. The last error may be
-- the error of such a job.
CREATE OR REPLACE FUNCTION _count_schedule_slots(
  schedule_id bigint,
  OUT running bigint,
  OUT failed_attempts bigint,
  OUT failures bigint,
  OUT unsuccessful bigint,
  OUT skips bigint,
  OUT missed bigint,
  OUT last_outcome text,
  OUT last_error text,
  OUT last_error_at timestamptz,
  OUT overdue timestamptz
)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  retrying uuid;
BEGIN
  SELECT
    count(*),
    coalesce(sum(j.attempt), 0),
    (array_agg(j.id ORDER BY j.ended_at DESC) FILTER (WHERE j.failed))[1]
  INTO running, failed_attempts, retrying
  FROM slots s
  LEFT JOIN jobs j ON j.id = s.job_id
  WHERE s.schedule_id = schedule_id
    AND s.outcome IS NULL
    AND s.job_id IS NOT NULL;
  SELECT
    count(*) FILTER (WHERE s.outcome IN ('failed', 'timed_out', 'lost'))
      + coalesce(max(y.failures), 0),
    count(*) FILTER (WHERE s.job_id IS NOT NULL) + coalesce(max(y.unsuccessful), 0),
    count(*) FILTER (WHERE s.outcome = 'skipped') + coalesce(max(y.skips), 0),
    coalesce(sum(s.count) FILTER (WHERE s.outcome = 'missed'), 0) + coalesce(max(y.missed), 0)
  INTO failures, unsuccessful, skips, missed
  FROM (
    SELECT *
    FROM slots s
    WHERE s.schedule_id = schedule_id
      AND s.outcome <> 'succeeded') s
  FULL JOIN (
    SELECT y.*
    FROM pruned_slot_counts y
    -- Row security filters schedules, and not the table of counts.
    JOIN schedules x ON x.id = y.schedule_id
    WHERE y.schedule_id = schedule_id) y
    ON y.schedule_id = s.schedule_id;
  last_outcome := (
    SELECT s.outcome
    FROM slots s
    WHERE s.schedule_id = schedule_id
      AND s.finished_at IS NOT NULL
    ORDER BY s.slot DESC
    LIMIT 1);
  IF retrying IS NOT NULL THEN
    SELECT left(a.error->>'message', 1000), a.ended_at
    INTO last_error, last_error_at
    FROM jobs j
    JOIN attempts a ON a.job_id = j.id AND a.ended_at = j.ended_at
    WHERE j.id = retrying
    ORDER BY a.run DESC
    LIMIT 1;
  ELSE
    SELECT s.error, s.finished_at
    INTO last_error, last_error_at
    FROM slots s
    WHERE s.schedule_id = schedule_id
      AND s.outcome <> 'succeeded'
      AND s.outcome IN ('failed', 'timed_out', 'lost')
    ORDER BY s.slot DESC
    LIMIT 1;
  END IF;
  overdue := (
    SELECT min(o.overdue_at)
    FROM overdue o
    WHERE o.schedule_id = schedule_id);
END $$;

CREATE OR REPLACE VIEW schedule AS
SELECT
  s.id, s.name, s.tenant, s.pattern, s.every, s.at, s.tz, s.dst, s.start, s."end", s.max_runs,
  s.jitter, s.type, s.payload, s.version, s.command, s.role, s.queue, s.priority,
  s.max_attempts, s.retry, s.timeout, s.missed, s.catch_up, s.grace, s.overlap, s.deadline,
  s.run_on_start, s.enabled, s.description, s.category, s.tags, s.context, s.created_by,
  s.owner, s.hash, s.created_at, s.updated_at,
  CASE
    WHEN NOT s.enabled THEN 'disabled'
    WHEN o.orphaned THEN 'orphaned'
    WHEN num_nonnulls(s.pattern, s.every, s.at) = 0 OR x.next_run IS NULL AND r.on_start
      THEN 'on_demand'
    WHEN x.next_run IS NULL AND x.held_slot IS NULL THEN 'ended'
    WHEN coalesce(x.next_run, x.held_slot) <= _clock() THEN 'due'
    WHEN c.failed_attempts > 0 THEN 'retrying'
    WHEN c.last_outcome IN ('failed', 'timed_out', 'lost') THEN 'failing'
    ELSE 'ok'
  END AS status,
  CASE WHEN NOT o.orphaned THEN coalesce(x.next_run, x.held_slot) END AS next_run,
  x.last_run, x.last_slot, c.last_outcome, c.last_error, c.last_error_at,
  x.runs AS runs,
  x.runs - c.unsuccessful - c.running AS successes,
  c.failures, c.skips, c.missed AS missed_slots, c.running, c.failed_attempts,
  o.orphaned, _is_schedule_changed(s) AS differs_from_code, c.overdue, s.expires
FROM schedules s
JOIN timers x ON x.schedule_id = s.id
LEFT JOIN compiled_patterns r ON r.id = s.pattern_id
CROSS JOIN LATERAL (
  SELECT s.owner IS NOT NULL AND cardinality(_find_orphans(ARRAY[s.id])) > 0 AS orphaned) o
CROSS JOIN LATERAL _count_schedule_slots(s.id) c;

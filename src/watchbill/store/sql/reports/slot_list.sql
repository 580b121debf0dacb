CREATE OR REPLACE VIEW slot AS
SELECT
  l.schedule_id, s.name, s.tenant, l.slot, l.kind, l.until, l.count, l.outcome, l.reason,
  l.job_id, l.fired_at, coalesce(l.started_at, r.started_at) AS started_at, l.finished_at,
  l.finished_at - l.started_at AS duration, l.error,
  CASE f.state WHEN 'succeeded' THEN f.result END AS result,
  coalesce(n.name, l.executor) AS node, coalesce(n.host, l.host) AS host, l.due_by, l.overdue_at,
  coalesce(f.attempt, j.attempt) AS attempt
FROM slots l
LEFT JOIN schedules s ON s.id = l.schedule_id
LEFT JOIN nodes n ON n.epoch = l.epoch
LEFT JOIN runs r ON r.job_id = l.job_id AND l.finished_at IS NULL
LEFT JOIN jobs j ON j.id = l.job_id AND l.finished_at IS NULL
LEFT JOIN finished_jobs f ON f.id = l.job_id AND f.finished_at = l.finished_at;

-- Lists the slots of a schedule, newest first. A slot is one instant at which the schedule was due.
-- With `outcome`, lists only the slots that have this outcome.
CREATE OR REPLACE FUNCTION slot_list(
  name text,
  tenant text DEFAULT _session_tenant(),
  before timestamptz DEFAULT NULL,
  max int DEFAULT 50,
  outcome text DEFAULT NULL
)
RETURNS SETOF slot
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
BEGIN
  RETURN QUERY
  SELECT v.*
  FROM slot v
  WHERE v.schedule_id = (
      SELECT s.id
      FROM schedules s
      WHERE s.name = name
        AND s.tenant = tenant)
    AND v.slot < coalesce(before, 'infinity')
    AND (outcome IS NULL OR v.outcome = outcome)
  ORDER BY v.slot DESC, v.kind
  LIMIT max;
END $$;

-- Shows every job of the session's tenant with the columns of the README's table. The view is read
-- only: jobs change through PgJobStore. As in the README, a job that waits for its next attempt is
-- `pending` and a canceled job is `failed`.
CREATE OR REPLACE VIEW @facade@.@prefix@jobs
WITH (security_invoker = true) AS
SELECT
  j.id,
  j.type AS job_type,
  CASE WHEN j.meta->>'seesaw' = 'value' THEN j.payload->'value' ELSE j.payload END AS payload,
  j.version,
  CASE j.state
    WHEN 'running' THEN 'running'
    WHEN 'succeeded' THEN 'succeeded'
    WHEN 'dead' THEN 'dead_letter'
    WHEN 'canceled' THEN 'failed'
    ELSE 'pending'
  END AS status,
  CASE
    WHEN j.finished_at IS NULL THEN j.attempt + 1
    ELSE greatest(j.attempt, 1)
  END::int AS attempt,
  j.max_attempts::int AS max_retries,
  j.priority::int AS priority,
  j.run_at,
  coalesce(n.labels->>'worker_id', j.holder) AS worker_id,
  j.lease_expires_at,
  j.error->>'message' AS error_message,
  CASE
    WHEN j.error IS NULL THEN NULL
    WHEN j.error->>'kind' IN ('permanent', 'canceled', 'skipped') THEN 'non_retryable'
    ELSE 'retryable'
  END AS error_kind,
  j.created_at,
  j.updated_at
FROM job j
LEFT JOIN nodes n ON n.epoch = j.epoch
WHERE j.tenant = _session_tenant();

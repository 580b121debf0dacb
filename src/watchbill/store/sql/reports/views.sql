-- Shows every job once, whether it is finished or not.
CREATE OR REPLACE VIEW job AS
SELECT
  j.id, j.seq, j.type, j.tenant, j.queue, j.priority, j.payload, j.version,
  _job_state(j.fence, j.wait, j.failed, j.wait_key) AS state,
  j.wait, j.attempt, j.max_attempts, j.run, j.lost, j.run_at, n.name AS holder, c.epoch,
  nullif(j.fence, 0) AS fence, c.at AS claimed_at, b.at + n.lease AS lease_expires_at,
  b.at AS heartbeat_at, r.started_at, NULL::timestamptz AS finished_at, NULL::text AS outcome,
  a.error, a.error->>'kind' AS error_kind, NULL::jsonb AS result, r.progress, j.canceling,
  j.meta->>'artifact_ref' AS artifact_ref, j.timeout, j.policy, j.lane, j.class = 2 AS quarantined,
  j.idempotency_key, j.route_key, j.limit_keys, j.schedule_id, j.slot, j.created_by, j.meta,
  j.created_at, greatest(j.created_at, c.at, r.seen_at, a.ended_at) AS updated_at,
  _describe_job_wait(
    j.fence, j.wait, j.failed, j.queue, j.type, j.lane, j.wait_key) AS waits,
  j.expires_at
FROM jobs j
LEFT JOIN claims c ON c.fence = j.fence
LEFT JOIN nodes n ON n.epoch = c.epoch
LEFT JOIN beats b ON b.epoch = c.epoch
LEFT JOIN runs r ON r.job_id = j.id AND r.fence = j.fence
LEFT JOIN LATERAL (
  SELECT x.error, x.ended_at
  FROM attempts x
  WHERE x.job_id = j.id
    AND x.ended_at = j.ended_at
  ORDER BY x.run DESC
  LIMIT 1) a ON true
UNION ALL
SELECT
  f.id, f.seq, f.type, f.tenant, f.queue, f.priority, f.payload, f.version, f.state,
  NULL, f.attempt, f.max_attempts, f.run, f.lost, f.run_at, n.name, f.epoch,
  f.fence, NULL, NULL,
  NULL, f.started_at, f.finished_at, f.outcome,
  f.error, f.error->>'kind', f.result, NULL, false,
  f.meta->>'artifact_ref', f.timeout, f.policy, f.lane, false,
  f.idempotency_key, f.route_key, f.limit_keys, f.schedule_id, f.slot, f.created_by, f.meta,
  f.created_at, f.finished_at, NULL, NULL::timestamptz
FROM finished_jobs f
LEFT JOIN nodes n ON n.epoch = f.epoch;

-- Shows every attempt once. A successful attempt is a row of finished_jobs, not of attempts.
CREATE OR REPLACE VIEW attempt AS
SELECT
  a.job_id, a.run, a.attempt, a.outcome, a.queue, a.type, a.tenant, n.name AS holder, a.epoch,
  a.fence, a.started_at, a.ended_at, a.error, a.due_at, a.failure
FROM attempts a
LEFT JOIN nodes n ON n.epoch = a.epoch
UNION ALL
SELECT
  f.id, f.run, f.attempt, 'succeeded', f.queue, f.type, f.tenant, n.name, f.epoch,
  f.fence, f.started_at, f.finished_at, NULL, f.run_at, NULL
FROM finished_jobs f
LEFT JOIN nodes n ON n.epoch = f.epoch
WHERE f.state = 'succeeded'
  AND f.outcome IS NULL;

CREATE OR REPLACE VIEW node AS
SELECT
  n.epoch, n.name, n.app, n.state, n.host, n.pid, n.labels, n.lease, n.watchbill_version,
  n.started_at, n.ended_at, b.at AS heartbeat_at, b.n AS beats,
  b.at + n.lease AS lease_expires_at,
  (
    SELECT coalesce(sum(cardinality(c.job_ids)), 0)
    FROM claims c
    WHERE c.epoch = n.epoch) AS claimed,
  (SELECT array_agg(t.type ORDER BY t.type) FROM node_types t WHERE t.epoch = n.epoch) AS types,
  n.queues, coalesce(b.processed, n.processed, 0) AS processed, n.capacity,
  ARRAY(
    SELECT substr(l.name, 8)
    FROM locks l
    WHERE l.epoch = n.epoch
      AND starts_with(l.name, 'leader/')
      AND b.at + n.lease > _clock()
    ORDER BY l.name) AS leads
FROM nodes n
LEFT JOIN beats b USING (epoch);

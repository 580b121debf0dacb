-- Shows which node holds which job. Starts from the claims, which are few among millions of jobs.
-- It is for facades: their views run with the rights of the reader, who may not read `claims` and
-- `runs`, because these have no tenant. Here row security filters `jobs`.
CREATE OR REPLACE VIEW running_job AS
SELECT
  j.id, c.fence, c.epoch, n.name AS holder, c.at AS claimed_at, b.at AS heartbeat_at,
  r.started_at, r.seen_at
FROM claims c
CROSS JOIN LATERAL (
  SELECT x.id
  FROM unnest(c.job_ids) held(id)
  JOIN jobs x ON x.id = held.id AND x.fence = c.fence
  -- OFFSET 0 keeps the planner from reading all jobs first.
  OFFSET 0) j
LEFT JOIN nodes n ON n.epoch = c.epoch
LEFT JOIN beats b ON b.epoch = c.epoch
LEFT JOIN runs r ON r.job_id = j.id AND r.fence = c.fence;

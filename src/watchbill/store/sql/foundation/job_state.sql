-- Says whether a job waits in one of its steps. A limit key may have the name of this wait_key, but
-- such a job is parked.
CREATE OR REPLACE FUNCTION _is_suspended(wait text, wait_key text)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN wait_key IS NOT NULL AND wait_key = 'steps' AND wait IN ('delayed', 'waiting');

-- Returns the state of an unfinished job, as users see it.
CREATE OR REPLACE FUNCTION _job_state(fence bigint, wait text, failed boolean, wait_key text)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN fence <> 0 THEN 'running'
    WHEN wait = 'blocked' THEN 'blocked'
    WHEN _is_suspended(wait, wait_key) THEN 'suspended'
    WHEN failed THEN 'failed'
    ELSE 'queued'
  END;

-- Says whether no live node serves the queue and has the labels that jobs of this lane ask for. A
-- lane below 0 stands for a set of labels.
CREATE OR REPLACE FUNCTION _is_lane_unmatched(queue text, lane int)
RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
SET search_path FROM CURRENT
RETURN lane < 0 AND NOT EXISTS (
  SELECT
  FROM label_sets s
  JOIN nodes n ON _has_labels(n.name, n.labels, s.labels)
  WHERE s.lane = _is_lane_unmatched.lane
    AND n.state = 'active'
    AND (n.queues IS NULL OR _is_lane_unmatched.queue = ANY (n.queues)));

-- Returns what a queued or failed job waits for, as users see it; NULL for a job in another state.
-- A job counts as paused as soon as its queue or type is paused, even if no claim has marked it
-- yet.
CREATE OR REPLACE FUNCTION _describe_job_wait(
  fence bigint, wait text, failed boolean, queue text, type text, lane int, wait_key text
)
RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
SET search_path FROM CURRENT
RETURN CASE
    WHEN fence <> 0 OR wait = 'blocked' OR _is_suspended(wait, wait_key) THEN NULL
    WHEN wait = 'parked' THEN 'limited'
    WHEN wait <> 'delayed' THEN wait
    WHEN wait = 'delayed' AND failed THEN 'retrying'
    WHEN wait = 'delayed' THEN 'scheduled'
    WHEN EXISTS (
      SELECT
      FROM pauses p
      WHERE (p.queue IS NULL OR p.queue = _describe_job_wait.queue)
        AND (p.type IS NULL OR p.type = _describe_job_wait.type)) THEN 'paused'
    WHEN _is_lane_unmatched(queue, lane) THEN 'unmatched'
    WHEN failed THEN 'retrying'
    ELSE 'ready'
  END;

-- The state of an unfinished job, as users see it.
CREATE OR REPLACE FUNCTION _job_state(fence bigint, wait text, failed boolean)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN fence <> 0 THEN 'running'
    WHEN wait = 'blocked' THEN 'blocked'
    WHEN failed THEN 'failed'
    ELSE 'queued'
  END;

-- Whether no live node has the labels that jobs of this lane ask for, and serves their queue.
CREATE OR REPLACE FUNCTION _is_unmatched(queue text, lane int)
RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
SET search_path FROM CURRENT
RETURN lane < 0 AND NOT EXISTS (
  SELECT
  FROM label_sets s
  JOIN nodes n ON n.labels @> s.labels
  WHERE s.lane = _is_unmatched.lane
    AND n.state = 'active'
    AND (n.queues IS NULL OR _is_unmatched.queue = ANY (n.queues)));

-- What a queued or failed job waits for, as users see it; NULL for all other jobs. A job is paused
-- as soon as its queue or type is, even if no claim has marked it yet.
CREATE OR REPLACE FUNCTION _job_waits(
  fence bigint,
  wait text,
  failed boolean,
  queue text,
  type text,
  lane int
)
RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
SET search_path FROM CURRENT
RETURN CASE
    WHEN fence <> 0 OR wait = 'blocked' THEN NULL
    WHEN wait = 'parked' THEN 'limited'
    WHEN wait <> 'delayed' THEN wait
    WHEN wait = 'delayed' AND failed THEN 'retrying'
    WHEN wait = 'delayed' THEN 'scheduled'
    WHEN EXISTS (
      SELECT
      FROM pauses p
      WHERE (p.queue IS NULL OR p.queue = _job_waits.queue)
        AND (p.type IS NULL OR p.type = _job_waits.type)) THEN 'paused'
    WHEN _is_unmatched(queue, lane) THEN 'unmatched'
    WHEN failed THEN 'retrying'
    ELSE 'ready'
  END;

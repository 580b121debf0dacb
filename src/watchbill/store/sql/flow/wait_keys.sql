-- The column wait_key of a job says what the job waits for: a pause, a node that supports its type,
-- or, for a parked job, a limit key.

CREATE OR REPLACE FUNCTION _paused_key(queue text, type text)
RETURNS text
LANGUAGE sql STABLE
RETURN jsonb_build_array(queue, type)::text;

CREATE OR REPLACE FUNCTION _unsupported_key(queue text, type text, version int)
RETURNS text
LANGUAGE sql STABLE
RETURN jsonb_build_array(queue, type, version)::text;

-- Lists the different wait keys of the jobs that wait for `reason`, each with the queue, type and
-- version of one of its jobs. Reads one index entry per key, however many jobs wait.
CREATE OR REPLACE FUNCTION _find_wait_keys(reason text)
RETURNS TABLE (key text, queue text, type text, version int)
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
    WITH RECURSIVE keys AS (
      (
        SELECT j.wait_key, j.queue, j.type, j.version
        FROM jobs j
        WHERE j.wait = reason
          AND j.wait_key IS NOT NULL
        ORDER BY j.wait_key
        LIMIT 1)
      UNION ALL
      SELECT n.wait_key, n.queue, n.type, n.version
      FROM keys k
      CROSS JOIN LATERAL (
        SELECT j.wait_key, j.queue, j.type, j.version
        FROM jobs j
        WHERE j.wait = reason
          AND j.wait_key > k.wait_key
        ORDER BY j.wait_key
        LIMIT 1) n)
    SELECT k.wait_key, k.queue, k.type, k.version FROM keys k;
END $$;

-- Returns the lane of the jobs with a route key, if the queue is routed; otherwise the given lane.
-- A pin, or another number of tokens, changes the lane of a route key.
CREATE OR REPLACE FUNCTION _find_route_lane(queue text, route_key text, lane int)
RETURNS int
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN coalesce((
    SELECT _route_lane(q.token_group, route_key)
    FROM queues q
    WHERE q.name = queue
      AND q.lanes = 'route'), lane);
END $$;

-- Returns the lane of a job that becomes ready. The lane of a routed job may have changed while the
-- job waited.
CREATE OR REPLACE FUNCTION _find_ready_lane(queue text, route_key text, lane int)
RETURNS int
LANGUAGE sql STABLE
RETURN CASE WHEN route_key IS NULL THEN lane ELSE _find_route_lane(queue, route_key, lane) END;

-- after: views
-- Says why a job does not run: lists every cause that holds, the deciding one first. `until` is
-- when the cause ends by itself, if that is known. A job without such a cause only waits for a free
-- handler slot. Returns no row if there is no such job.
CREATE OR REPLACE FUNCTION why_job(id uuid, now timestamptz DEFAULT NULL)
RETURNS TABLE (cause text, reason text, until timestamptz)
LANGUAGE plpgsql STABLE AS $$
DECLARE
  t timestamptz := _clock(now);
  j job;
BEGIN
  SELECT * INTO j FROM job_by_id(id);
  IF NOT FOUND THEN RETURN; END IF;
  IF j.finished_at IS NOT NULL THEN
    RETURN QUERY
      SELECT
        'finished',
        format('it is %s, since %s', j.state, date_trunc('second', j.finished_at))
          || coalesce(': ' || nullif(j.error->>'message', ''), ''),
        NULL::timestamptz;
    RETURN;
  ELSIF j.state = 'running' THEN
    RETURN QUERY
      SELECT
        'running',
        _explain_running_job(j.id, j.holder, j.claimed_at, j.started_at),
        NULL::timestamptz;
    RETURN;
  END IF;
  RETURN QUERY
    SELECT o.cause, o.reason, o.until
    FROM _list_job_obstacles(j, t) o
    WHERE o.reason IS NOT NULL
    ORDER BY o.rank, o.reason;
  IF NOT FOUND THEN
    RETURN QUERY
      SELECT
        'ready',
        format(
          'nothing keeps it: it is due since %s, and starts when a node has a free handler slot',
          date_trunc('second', j.run_at))
          || CASE
            WHEN j.quarantined THEN '; its last node was lost, so nothing else starts beside it'
            ELSE ''
          END,
        NULL::timestamptz;
  END IF;
END $$;

-- Lists what may keep an unfinished job from running; where `reason` is NULL, it does not.
CREATE OR REPLACE FUNCTION _list_job_obstacles(j job, t timestamptz)
RETURNS TABLE (rank int, cause text, reason text, until timestamptz)
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
    SELECT 1, 'blocked', _explain_blocked_job(j.id), NULL::timestamptz
    WHERE j.wait = 'blocked'
    UNION ALL
    SELECT
      2,
      'delayed',
      CASE
        WHEN j.state = 'failed' THEN format(
          'attempt %s of %s failed (%s); the next one is due at %s, in %s',
          j.attempt, j.max_attempts, coalesce(j.error->>'message', j.error->>'kind', 'unknown'),
          j.run_at, date_trunc('second', j.run_at - t))
        ELSE format('it is due at %s, in %s', j.run_at, date_trunc('second', j.run_at - t))
      END,
      j.run_at
    WHERE j.run_at > t
    UNION ALL
    SELECT 3, 'paused', _describe_pause(p), NULL
    FROM pauses p
    WHERE (p.queue IS NULL OR p.queue = j.queue)
      AND (p.type IS NULL OR p.type = j.type)
    UNION ALL
    -- Looks at beats too: if all nodes were killed, none is left that declares the others lost.
    SELECT 4, 'no_node', 'no node is alive', NULL
    WHERE NOT EXISTS (
      SELECT
      FROM nodes n
      JOIN beats b USING (epoch)
      WHERE n.state = 'active'
        AND b.at + n.lease > t)
    UNION ALL
    SELECT 5, 'unserved', format('no live node serves its queue %s', j.queue), NULL
    WHERE EXISTS (SELECT FROM nodes n WHERE n.state = 'active')
      AND NOT EXISTS (
        SELECT
        FROM nodes n
        WHERE n.state = 'active'
          AND (n.queues IS NULL OR j.queue = ANY (n.queues)))
    UNION ALL
    SELECT 6, 'unsupported', _explain_unsupported_type(j.type, j.version), NULL
    WHERE EXISTS (SELECT FROM nodes n WHERE n.state = 'active')
      AND (
        j.wait = 'unsupported'
        -- A node without rows in node_types has not declared its types, so it may handle any type.
        OR NOT EXISTS (
          SELECT
          FROM nodes n
          WHERE n.state = 'active'
            AND NOT EXISTS (SELECT FROM node_types x WHERE x.epoch = n.epoch)))
    UNION ALL
    SELECT
      7, 'unmatched', format('no live node that serves its queue has the labels %s', s.labels),
      NULL
    FROM label_sets s
    WHERE s.lane = j.lane
      AND EXISTS (SELECT FROM nodes n WHERE n.state = 'active')
      AND _is_lane_unmatched(j.queue, j.lane)
    UNION ALL
    SELECT 8, 'unowned', _explain_unowned_key(j.queue, j.lane, j.route_key), NULL
    WHERE j.lane > 0
    UNION ALL
    SELECT 9, 'limited', _explain_limit_wait(x.wait_key), s.next_at
    FROM jobs x
    LEFT JOIN limit_states s ON s.key = x.wait_key
    WHERE x.id = j.id
      AND x.wait = 'parked';
END $$;

CREATE OR REPLACE FUNCTION _explain_running_job(
  id uuid, holder text, claimed_at timestamptz, started_at timestamptz
)
RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
RETURN CASE
    WHEN started_at IS NULL THEN format(
      'node %s claimed it at %s, and has started it or starts it next',
      coalesce(holder, 'unknown'), date_trunc('second', claimed_at))
    ELSE format(
      'it runs on node %s since %s', coalesce(holder, 'unknown'), date_trunc('second', started_at))
  END || coalesce((
    SELECT format(
      '; %s asked it to stop at %s', c.requested_by, date_trunc('second', c.requested_at))
    FROM cancels c
    WHERE c.job_id = _explain_running_job.id), '');

-- Says which jobs a blocked job waits for: names the first five, and counts the others.
CREATE OR REPLACE FUNCTION _explain_blocked_job(id uuid)
RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT CASE count(*)
      WHEN 0 THEN 'the jobs that it waits for have ended; a node unblocks it soon'
      ELSE format(
        'it waits for %s%s', string_agg(
          format('job %s (%s, %s)', d.parent, p.type, p.state), ', ' ORDER BY d.place)
          FILTER (WHERE d.number <= 5),
        CASE WHEN count(*) > 5 THEN format(' and %s more', count(*) - 5) ELSE '' END)
    END
  FROM (
    SELECT x.parent, x.place, x.tenant, row_number() OVER (ORDER BY x.place) AS number
    FROM jobs j
    JOIN dependencies x ON x.child = j.id AND x.tenant = j.tenant
    WHERE j.id = _explain_blocked_job.id
      AND x.outcome IS NULL) d
  LEFT JOIN LATERAL (
    SELECT v.type, v.state
    FROM job_by_id(d.parent) v
    WHERE d.number <= 5
      AND v.tenant = d.tenant) p ON true
$$;

CREATE OR REPLACE FUNCTION _describe_pause(p pauses)
RETURNS text
LANGUAGE sql STABLE
RETURN format(
  '%s is paused by %s since %s%s',
  concat_ws(' in ', 'type ' || (p).type, 'queue ' || (p).queue), coalesce((p).by, 'unknown'),
  date_trunc('second', (p).at), coalesce(': ' || (p).reason, ''));

-- Says why no live node owns the route key of a job in a routed queue; NULL if one does. While the
-- key's token moves to another node, the job waits for the end of that hand-over.
CREATE OR REPLACE FUNCTION _explain_unowned_key(queue text, lane int, route_key text)
RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT CASE
      WHEN n.epoch IS NULL AND EXISTS (
        SELECT
        FROM pins p
        WHERE p.token_group = q.token_group
          AND p.key = _explain_unowned_key.route_key
          AND p.token = _explain_unowned_key.lane - 1)
        THEN format(
          'its key %L is pinned, and no live node of group %s matches the pin',
          _explain_unowned_key.route_key, q.token_group)
      WHEN n.epoch IS NULL THEN format(
        'no live node of group %s owns its key %L yet',
        q.token_group, _explain_unowned_key.route_key)
      WHEN x.next IS NOT NULL THEN format(
        'its key %L moves from node %s to another', _explain_unowned_key.route_key, n.name)
    END
  FROM queues q
  LEFT JOIN tokens x ON x.token_group = q.token_group AND x.token = _explain_unowned_key.lane - 1
  LEFT JOIN nodes n ON n.epoch = x.epoch AND n.state IN ('active', 'draining')
  WHERE q.name = _explain_unowned_key.queue
    AND q.token_group IS NOT NULL
$$;

-- Says that no live node handles the type in this version; NULL if one does.
CREATE OR REPLACE FUNCTION _explain_unsupported_type(type text, version int)
RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT CASE
      WHEN max(x.version) >= _explain_unsupported_type.version THEN NULL
      WHEN max(x.version) IS NULL THEN
        format('no live node handles its type %s', _explain_unsupported_type.type)
      ELSE format(
        'live nodes handle version %s of its type %s, and it has version %s',
        max(x.version), _explain_unsupported_type.type, _explain_unsupported_type.version)
    END
  FROM node_types x
  JOIN nodes n USING (epoch)
  WHERE n.state = 'active'
    AND x.type = _explain_unsupported_type.type
$$;

-- Says which limit a job waits for. Says also that the limit is 0, or names the job that holds it,
-- if there is only one and the caller may see it. Leaves out the prefix `key:` that the keys of
-- named limits have in the database.
CREATE OR REPLACE FUNCTION _explain_limit_wait(key text)
RETURNS text
LANGUAGE sql STABLE AS $$
  WITH held AS (
    SELECT h.job_id
    FROM holds h
    WHERE h.key = _explain_limit_wait.key
    LIMIT 2)
  SELECT 'it waits for the limit '
    || regexp_replace(_explain_limit_wait.key, '^key:', '') || coalesce((
    SELECT CASE v.state
        WHEN 'dead' THEN format(
          ', which the dead job %s keeps; retry that job, or clear the limit', v.id)
        ELSE format(', which job %s (%s) holds', v.id, v.state)
      END
    FROM held
    CROSS JOIN LATERAL job_by_id(held.job_id) v
    WHERE (SELECT count(*) FROM held) = 1), (
    SELECT ', which is 0, so that no job of it starts'
    FROM limits l
    WHERE l.name = _limit_name(_explain_limit_wait.key)
      AND l.max = 0), '')
$$;

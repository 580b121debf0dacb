-- after: alert_finding
-- Finds what may be wrong by the figures of the last hour, and by the newest sample of the backlog.
-- Reads these small tables only.
CREATE OR REPLACE FUNCTION _find_figure_alerts(t timestamptz)
RETURNS SETOF alert_finding
LANGUAGE plpgsql STABLE AS $$
DECLARE
  sampled_at timestamptz := (SELECT m.last_at FROM chore_marks m WHERE m.chore = 'samples');
BEGIN
  RETURN QUERY SELECT * FROM _find_failing_types(t);
  RETURN QUERY SELECT * FROM _find_backlogs(sampled_at, t);
  RETURN QUERY SELECT * FROM _find_slow_pickups(t);
  RETURN QUERY SELECT * FROM _find_heartbeat_loads(sampled_at);
END $$;

-- Finds types, and the sum of all, of which runs have failed or jobs have died in the last hour.
CREATE OR REPLACE FUNCTION _find_failing_types(t timestamptz)
RETURNS SETOF alert_finding
LANGUAGE plpgsql STABLE AS $$
DECLARE
  least_attempts int := 20;
BEGIN
  RETURN QUERY
    WITH figures AS MATERIALIZED (
      SELECT
        CASE r.dimension WHEN 'all' THEN '(all)' ELSE r.name END AS subject,
        sum(r.failed + r.timed_out + r.lost)::float8 AS failed,
        sum(r.succeeded + r.skipped + r.failed + r.timed_out + r.lost)::float8 AS attempts,
        sum(r.dead)::float8 AS dead
      FROM rollups r
      WHERE r.at > t - interval '1 hour'
        AND (r.grain, r.dimension) IN (('minute', 'all'), ('ten_minutes', 'type'))
      GROUP BY 1)
    SELECT
      'failure_rate', f.subject, NULL::text, 100 * f.failed / f.attempts, NULL::float8,
      format(
        '%s of %s runs%s have failed in the last hour',
        f.failed, f.attempts, _name_subject(' of type ', f.subject)),
      jsonb_build_object('failed', f.failed, 'attempts', f.attempts)
    FROM figures f
    WHERE f.attempts >= least_attempts
      AND f.failed > 0
    UNION ALL
    SELECT
      'dead_spike', f.subject, NULL, f.dead, NULL,
      format(
        '%s jobs%s have died in the last hour', f.dead, _name_subject(' of type ', f.subject)),
      '{}'
    FROM figures f
    WHERE f.dead > 0;
END $$;

-- Returns the words before a subject, and the subject; nothing for the sum of all.
CREATE OR REPLACE FUNCTION _name_subject(words text, subject text)
RETURNS text
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN subject = '(all)' THEN '' ELSE words || subject END;

-- Finds queues in which jobs wait, for nodes too. An estimate says so in its reason.
CREATE OR REPLACE FUNCTION _find_backlogs(sampled_at timestamptz, t timestamptz)
RETURNS SETOF alert_finding
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
    WITH live AS MATERIALIZED (
        SELECT n.queues FROM _list_live_nodes(t) l JOIN nodes n USING (epoch)),
      queue AS MATERIALIZED (
        SELECT
          s.*, CASE WHEN s.is_estimate THEN 'about ' ELSE '' END AS about,
          EXISTS (
            SELECT FROM live l WHERE l.queues IS NULL OR s.name = ANY (l.queues)) AS is_served
        FROM samples s
        WHERE s.grain IN ('ten_seconds', 'minute', 'hour')
          AND s.dimension = 'queue'
          AND s.at = sampled_at)
    SELECT
      'backlog', q.name, NULL::text, q.ready::float8, NULL::float8,
      format('%s%s jobs of queue %s are ready', q.about, q.ready, q.name),
      jsonb_build_object('is_estimate', q.is_estimate)
    FROM queue q
    WHERE q.ready > 0
    UNION ALL
    SELECT
      'oldest', q.name, NULL, extract(epoch FROM t - q.oldest)::float8, NULL,
      format(
        'the oldest ready job of queue %s has been due for %s', q.name,
        _show_distance(q.oldest, t)),
      '{}'
    FROM queue q
    WHERE q.oldest < t
    UNION ALL
    SELECT
      'unserved', q.name, NULL, NULL, NULL,
      format(
        '%s%s jobs of queue %s are ready, and no live node serves it', q.about, q.ready, q.name),
      '{}'
    FROM queue q
    WHERE q.ready > 0
      AND NOT q.is_served
      AND EXISTS (SELECT FROM live)
    UNION ALL
    SELECT
      'unmatched', q.name, NULL, NULL, NULL,
      format(
        '%s%s jobs of queue %s need labels that no live node has', q.about, q.unmatched, q.name),
      '{}'
    FROM queue q
    WHERE q.unmatched > 0
    UNION ALL
    SELECT
      'no_nodes', '(all)', NULL, NULL, NULL,
      format('no node lives, and %s jobs are ready', sum(q.ready)), '{}'
    FROM queue q
    WHERE NOT EXISTS (SELECT FROM live)
    HAVING sum(q.ready) > 0
    UNION ALL
    SELECT
      'limit_saturated', _queue_key(q.name), NULL, NULL, NULL,
      format('queue %s has reached its limit of %s, and %s jobs are ready', q.name, x.max, q.ready),
      '{}'
    FROM queue q
    JOIN queues x ON x.name = q.name AND x.max > 0
    WHERE q.ready > 0
      AND (
        SELECT count(*)
        FROM (SELECT FROM holds h WHERE h.key = _queue_key(q.name) LIMIT x.max) y) >= x.max;
END $$;

-- Lists nodes that take jobs and have sent a beat within their lease. If all nodes were killed,
-- none is left that declares them lost.
CREATE OR REPLACE FUNCTION _list_live_nodes(t timestamptz)
RETURNS TABLE (epoch bigint)
LANGUAGE sql STABLE AS $$
  SELECT b.epoch
  FROM beats b
  JOIN nodes n USING (epoch)
  WHERE n.state = 'active'
    AND b.at + n.lease > t
$$;

-- Finds how long jobs of each queue have waited on average before they started, in the last ten
-- minutes.
CREATE OR REPLACE FUNCTION _find_slow_pickups(t timestamptz)
RETURNS SETOF alert_finding
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
    SELECT
      'slow_pickup', x.name, NULL::text, x.wait, NULL::float8,
      format(
        'jobs of queue %s wait %s s on average before they start', x.name,
        round(x.wait::numeric, 1)),
      '{}'::jsonb
    FROM (
      SELECT
        r.name,
        sum(r.wait_seconds) / nullif(
          sum(r.succeeded + r.skipped + r.failed + r.timed_out + r.snoozed), 0) AS wait
      FROM rollups r
      WHERE r.grain = 'minute'
        AND r.dimension = 'queue'
        AND r.at > t - interval '10 minutes'
      GROUP BY 1) x
    WHERE x.wait > 0;
END $$;

-- Finds how many heartbeats a minute the running jobs of each tenant, and of all, would need if
-- each sent its own: heartbeat_load() explains it. Takes a tenant's jobs from the sample.
CREATE OR REPLACE FUNCTION _find_heartbeat_loads(sampled_at timestamptz)
RETURNS SETOF alert_finding
LANGUAGE plpgsql STABLE AS $$
DECLARE
  beats_of_job float8 := (
    SELECT 180 / extract(epoch FROM avg(n.lease))
    FROM nodes n
    WHERE n.state IN ('active', 'draining'));
BEGIN
  RETURN QUERY
    SELECT
      'heartbeat_budget', CASE s.dimension WHEN 'all' THEN '(all)' ELSE s.name END, s.tenant,
      s.running * beats_of_job, q.heartbeat_budget::float8,
      format(
        '%s running jobs%s would need %s heartbeats a minute', s.running,
        CASE s.dimension WHEN 'tenant' THEN ' of tenant ' || s.name ELSE '' END,
        round((s.running * beats_of_job)::numeric)),
      '{}'::jsonb
    FROM samples s
    LEFT JOIN tenants q ON q.tenant = s.tenant
    WHERE s.grain IN ('ten_seconds', 'minute', 'hour')
      AND s.dimension IN ('all', 'tenant')
      AND s.at = sampled_at
      AND s.running > 0
      AND beats_of_job IS NOT NULL;
END $$;

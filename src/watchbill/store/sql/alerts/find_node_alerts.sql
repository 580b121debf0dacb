-- after: alert_finding
-- Finds what may be wrong with nodes, types, running jobs and endpoints.
CREATE OR REPLACE FUNCTION _find_node_alerts(t timestamptz)
RETURNS SETOF alert_finding
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY SELECT * FROM _find_lost_nodes(t);
  RETURN QUERY SELECT * FROM _find_noted_alerts(t);
  RETURN QUERY
    SELECT
      'unsupported', u.type, NULL::text, NULL::float8, NULL::float8,
      format('no live node handles version %s of type %s', u.version, u.type), '{}'::jsonb
    FROM unsupported_types u
    WHERE EXISTS (SELECT FROM _list_live_nodes(t))
      AND NOT EXISTS (
        SELECT
        FROM _list_live_nodes(t) l(epoch)
        JOIN node_types n ON n.epoch = l.epoch AND n.type = u.type AND n.version >= u.version)
    ORDER BY u.since
    LIMIT 100;
  RETURN QUERY
    SELECT
      'slow_job', r.job_id::text, j.tenant, extract(epoch FROM t - r.started_at)::float8,
      NULL::float8,
      format('a job of type %s has been running for %s', j.type, _show_distance(r.started_at, t)),
      jsonb_build_object('type', j.type, 'queue', j.queue)
    FROM (
      SELECT x.job_id, x.started_at
      FROM runs x
      WHERE x.started_at < t - interval '1 minute'
      ORDER BY x.started_at
      LIMIT 100) r
    JOIN jobs j ON j.id = r.job_id AND j.fence <> 0;
  RETURN QUERY
    SELECT
      'endpoint_disabled', e.name, e.tenant, NULL::float8, NULL::float8,
      format('endpoint %s of tenant %s was disabled: %s', e.name, e.tenant, e.disabled_reason),
      '{}'::jsonb
    FROM connector_endpoints e
    WHERE e.disabled_reason = ANY (_endpoint_failure_reasons())
    ORDER BY e.disabled_at DESC
    LIMIT 100;
END $$;

-- Finds nodes that were lost within a day, or are silent because no node is left to declare them
-- lost, unless as many nodes of the same app have started since.
CREATE OR REPLACE FUNCTION _find_lost_nodes(t timestamptz)
RETURNS SETOF alert_finding
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
    WITH lost AS MATERIALIZED (
      SELECT n.name, n.app, n.ended_at AS at
      FROM nodes n
      WHERE n.state = 'lost'
        AND n.ended_at > t - interval '1 day'
      UNION ALL
      SELECT n.name, n.app, b.at
      FROM beats b
      JOIN nodes n USING (epoch)
      WHERE b.at + n.lease <= t)
    SELECT
      'node_down', l.name, NULL::text, NULL::float8, NULL::float8,
      format(
        'node %s%s was lost: its last beat was %s ago', l.name, coalesce(' of app ' || l.app, ''),
        _show_distance(max(l.at), t)),
      jsonb_build_object('app', l.app, 'last_beat', max(l.at))
    FROM lost l
    WHERE (
      SELECT count(*)
      FROM _list_live_nodes(t) x(epoch)
      JOIN nodes n USING (epoch)
      WHERE n.app IS NOT DISTINCT FROM l.app
        AND n.started_at > l.at)
      < (
        SELECT count(*) FROM lost y WHERE y.app IS NOT DISTINCT FROM l.app AND y.at >= l.at)
    GROUP BY l.name, l.app
    ORDER BY max(l.at) DESC
    LIMIT 500;
END $$;

-- Finds what functions have noted lately. What is not noted any more is well again.
CREATE OR REPLACE FUNCTION _find_noted_alerts(t timestamptz)
RETURNS SETOF alert_finding
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
    SELECT
      e.rule, e.subject, NULL::text, CASE WHEN e.rule = 'clock_skew' THEN e.value END, NULL::float8,
      CASE e.rule
        WHEN 'clock_skew' THEN format(
          'the clock of node %s differs by %s s from that of the database', e.subject,
          round(e.value::numeric, 1))
        WHEN 'locked_jobs' THEN format(
          'other transactions lock %s jobs that a worker wants to settle', e.value)
        WHEN 'poison' THEN format('%s jobs of type %s were lost twice', e.value, e.subject)
      END,
      '{}'::jsonb
    FROM alert_events e
    WHERE e.at > t - CASE e.rule WHEN 'poison' THEN interval '1 hour' ELSE interval '1 minute' END
    ORDER BY e.rule, e.at DESC
    LIMIT 1000;
END $$;

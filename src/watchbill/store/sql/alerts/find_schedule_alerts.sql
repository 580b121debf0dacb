-- after: alert_finding
-- Finds schedules that are overdue, late, orphaned, or fail again and again. At most 100 of each.
CREATE OR REPLACE FUNCTION _find_schedule_alerts(t timestamptz)
RETURNS SETOF alert_finding
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
    SELECT
      'schedule_overdue', o.name, o.tenant, NULL::float8, NULL::float8,
      format(
        'the run of schedule %s for %s should have ended by %s', o.name, o.slot, min(o.due_by)),
      '{}'::jsonb
    FROM (SELECT * FROM overdue LIMIT 100) o
    GROUP BY o.name, o.tenant, o.slot;
  RETURN QUERY
    SELECT
      'schedule_late', s.name, s.tenant, extract(epoch FROM t - x.next_run)::float8, NULL::float8,
      format('schedule %s has been due for %s', s.name, _show_distance(x.next_run, t)), '{}'::jsonb
    FROM (
      SELECT y.schedule_id, y.next_run
      FROM timers y
      WHERE y.next_run < t
      ORDER BY y.next_run
      LIMIT 100) x
    JOIN schedules s ON s.id = x.schedule_id;
  RETURN QUERY
    SELECT
      'schedule_orphaned', s.name, s.tenant, NULL::float8, NULL::float8,
      format('no live node of app %s declares schedule %s any more', s.owner, s.name), '{}'::jsonb
    FROM (SELECT y.schedule_id FROM timers y WHERE y.held_slot IS NOT NULL LIMIT 100) x
    JOIN schedules s ON s.id = x.schedule_id AND s.enabled;
  RETURN QUERY SELECT * FROM _find_failing_schedules(t);
END $$;

-- Finds schedules whose last three slots have all failed, timed out, were lost or missed. Looks at
-- those whose type has failed within a day, and at those that no node has fired, at most 200.
CREATE OR REPLACE FUNCTION _find_failing_schedules(t timestamptz)
RETURNS SETOF alert_finding
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
    SELECT
      'schedule_failing', s.name, s.tenant, NULL::float8, NULL::float8,
      format('the last three runs of schedule %s: %s', s.name, o.outcomes), '{}'::jsonb
    FROM (
      SELECT DISTINCT x.id, x.name, x.tenant
      FROM failure_groups g
      JOIN schedules x ON x.tenant = g.tenant AND x.type = g.type AND x.enabled
      WHERE g.last > t - interval '1 day'
      LIMIT 200) s
    CROSS JOIN LATERAL (
      SELECT
        string_agg(l.outcome, ', ' ORDER BY l.slot DESC) AS outcomes,
        count(*) FILTER (WHERE l.outcome IN ('failed', 'timed_out', 'lost', 'missed')) AS bad
      FROM (
        SELECT x.slot, x.outcome
        FROM slots x
        WHERE x.schedule_id = s.id
          AND x.outcome IS NOT NULL
        ORDER BY x.slot DESC
        LIMIT 3) l) o
    WHERE o.bad = 3;
END $$;

-- after: alert_finding, alert_rule_list, alert_matchers
-- What is wrong with a subject by the rules: it `is_over` the threshold, or only near it, so that
-- it keeps an episode open. `above` is NULL if the rule asks yes or no.
SELECT _create_type('alert_verdict', $$
  rule text,
  subject text,
  tenant text,
  severity text,
  lasting interval,
  value float8,
  above float8,
  is_over boolean,
  reason text,
  detail jsonb$$);

-- Compares what is with the rules: opens episodes, raises those that have lasted, clears those that
-- are well again, and hands both to the routes. All in one transaction, so that a crash repeats
-- nothing and loses nothing. An episode is
--   pending  while it has not lasted as long as its rule says; it is forgotten if it ends before
--   firing   until its value has been at most nine tenths of the threshold for two minutes; if the
--            rule asks yes or no, until the answer is no
--   cleared  from then on
-- Only _observe() calls this, so one session at a time. Locks the open episodes. Returns the
-- seconds until the next step.
CREATE OR REPLACE FUNCTION _evaluate_alerts(t timestamptz)
RETURNS float8
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  verdicts alert_verdict[] := ARRAY(SELECT v FROM _fold_alerts(_judge_findings(t)) v);
BEGIN
  PERFORM _change_open_alerts(verdicts, t);
  PERFORM _open_alerts(verdicts, t);
  PERFORM _raise_alerts(verdicts, t);
  PERFORM _announce_alerts(t);
  RETURN _figures_pause();
END $$;

-- Applies the rules to what was found, and leaves out what is well.
CREATE OR REPLACE FUNCTION _judge_findings(t timestamptz)
RETURNS alert_verdict[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN ARRAY(
    WITH findings AS MATERIALIZED (
        SELECT * FROM _find_figure_alerts(t)
        UNION ALL
        SELECT * FROM _find_node_alerts(t)
        UNION ALL
        SELECT * FROM _find_schedule_alerts(t)
        UNION ALL
        SELECT * FROM _find_group_alerts(t)
        UNION ALL
        SELECT * FROM _find_limit_alerts(t)
        UNION ALL
        SELECT * FROM _find_upkeep_alerts(t)),
      judged AS (
        SELECT
          f.*,
          coalesce(own.severity, base.severity, d.severity) AS severity,
          coalesce(own.lasting, base.lasting, d.lasting) AS lasting,
          coalesce(own.above, f.own_above, base.above, d.above) AS above
        FROM findings f
        JOIN _alert_rule_defaults() d USING (rule)
        LEFT JOIN alert_rules own
          ON own.rule = f.rule AND own.subject = f.subject AND own.subject <> ''
        LEFT JOIN alert_rules base ON base.rule = f.rule AND base.subject = ''
        WHERE coalesce(own.is_enabled, base.is_enabled, true))
    SELECT DISTINCT ON (j.rule, j.subject)
      ROW(
        j.rule, j.subject, j.tenant, j.severity, j.lasting, j.value, j.above,
        j.value IS NULL OR j.value > j.above, left(j.reason, 500), j.detail)::alert_verdict
    FROM judged j
    WHERE j.value IS NULL
      OR j.value > 0.9 * j.above
    ORDER BY j.rule, j.subject, j.value DESC NULLS FIRST);
END $$;

-- Makes one verdict of those of a rule with more than 20 subjects, or with more than 10 if it has
-- been one until now. So a fault that concerns everything is one alert.
CREATE OR REPLACE FUNCTION _fold_alerts(verdicts alert_verdict[])
RETURNS SETOF alert_verdict
LANGUAGE plpgsql STABLE AS $$
DECLARE
  folded text[] := ARRAY(
    SELECT v.rule
    FROM unnest(verdicts) v
    WHERE v.subject <> '(all)'
    GROUP BY v.rule
    HAVING count(*) > CASE
        WHEN EXISTS (
          SELECT
          FROM alerts a
          WHERE a.rule = v.rule
            AND a.subject = '(many)'
            AND a.cleared_at IS NULL) THEN 10
        ELSE 20
      END);
BEGIN
  RETURN QUERY
    SELECT v.*
    FROM unnest(verdicts) v
    WHERE v.rule <> ALL (folded)
      OR v.subject = '(all)';
  RETURN QUERY
    SELECT
      v.rule, '(many)', NULL::text, max(v.severity), max(v.lasting), count(*)::float8,
      NULL::float8, bool_or(v.is_over),
      format('%s subjects: %s', count(*), d.title),
      jsonb_build_object(
        'subjects', (
          SELECT jsonb_agg(x.subject ORDER BY x.subject)
          FROM (
            SELECT y.subject
            FROM unnest(verdicts) y
            WHERE y.rule = v.rule
            ORDER BY y.value DESC NULLS LAST, y.subject
            LIMIT 20) x))
    FROM unnest(verdicts) v
    JOIN _alert_rule_defaults() d USING (rule)
    WHERE v.rule = ANY (folded)
      AND v.subject <> '(all)'
    GROUP BY v.rule, d.title;
END $$;

-- Brings the open episodes up to date: forgets pending ones that have ended, and clears firing ones
-- that are well for long enough. Those of single subjects that are one alert from now on end
-- without a word.
CREATE OR REPLACE FUNCTION _change_open_alerts(verdicts alert_verdict[], t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  DELETE FROM alerts a
  WHERE a.state = 'pending'
    AND NOT EXISTS (
      SELECT
      FROM unnest(verdicts) v
      WHERE v.rule = a.rule
        AND v.subject = a.subject
        AND v.is_over);
  UPDATE alerts a
  SET value = v.value,
    above = v.above,
    severity = v.severity,
    reason = v.reason,
    detail = v.detail,
    well_since = NULL
  FROM unnest(verdicts) v
  WHERE a.cleared_at IS NULL
    AND v.rule = a.rule
    AND v.subject = a.subject;
  UPDATE alerts a
  SET well_since = coalesce(a.well_since, t),
    state = CASE WHEN x.is_cleared THEN 'cleared' ELSE a.state END,
    cleared_at = CASE WHEN x.is_cleared THEN t END,
    -- What is folded is not announced: the one alert for all of them says more.
    announced_at = CASE WHEN NOT x.is_folded THEN a.announced_at END
  FROM (
    SELECT
      y.id,
      f.is_folded,
      f.is_folded
      OR y.above IS NULL
      OR y.well_since <= t - interval '2 minutes' AS is_cleared
    FROM alerts y
    CROSS JOIN LATERAL (
      SELECT y.subject NOT IN ('(all)', '(many)') AND EXISTS (
        SELECT FROM unnest(verdicts) v WHERE v.rule = y.rule AND v.subject = '(many)') AS is_folded)
      f
    WHERE y.state = 'firing'
      AND NOT EXISTS (
        SELECT FROM unnest(verdicts) v WHERE v.rule = y.rule AND v.subject = y.subject)) x
  WHERE a.id = x.id;
END $$;

-- Opens an episode for each subject that is over its threshold and has none.
CREATE OR REPLACE FUNCTION _open_alerts(verdicts alert_verdict[], t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  INSERT INTO alerts (
    rule, subject, tenant, severity, state, since, value, above, reason, detail)
  SELECT
    v.rule, v.subject, v.tenant, v.severity, 'pending', t, v.value, v.above, v.reason, v.detail
  FROM unnest(verdicts) v
  WHERE v.is_over
  ON CONFLICT (rule, subject) WHERE cleared_at IS NULL DO NOTHING;
END $$;

-- Raises what has lasted as long as its rule says.
CREATE OR REPLACE FUNCTION _raise_alerts(verdicts alert_verdict[], t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  UPDATE alerts a
  SET state = 'firing',
    fired_at = t
  FROM unnest(verdicts) v
  WHERE a.state = 'pending'
    AND v.rule = a.rule
    AND v.subject = a.subject
    AND a.since <= t - v.lasting;
END $$;

-- Hands to the routes what is raised and not silenced. An alert that has cleared is handed to the
-- same routes.
CREATE OR REPLACE FUNCTION _announce_alerts(t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  WITH raised AS (
    UPDATE alerts a
    SET announced_at = t
    WHERE a.state = 'firing'
      AND a.announced_at IS NULL
      AND a.well_since IS NULL
      AND NOT _is_silenced(a, t)
    RETURNING a.*)
  INSERT INTO alert_deliveries (alert, route, event, created_at, due_at)
  SELECT a.id, r.name, 'raised', t, t
  FROM raised a
  JOIN alert_routes r
    ON r.is_enabled AND _matches_alert(r.matcher, a.rule, a.subject, a.severity, a.tenant)
  ON CONFLICT DO NOTHING;
  INSERT INTO alert_deliveries (alert, route, event, created_at, due_at)
  SELECT a.id, d.route, 'cleared', t, t
  FROM alerts a
  JOIN alert_deliveries d ON d.alert = a.id AND d.event = 'raised'
  JOIN alert_routes r ON r.name = d.route AND r.is_enabled
  WHERE a.cleared_at = t
    AND a.announced_at IS NOT NULL
  ON CONFLICT DO NOTHING;
END $$;

-- Deletes alerts that cleared 90 days ago with their deliveries, silences that ended a week ago,
-- and what was noted a day ago. Deletes at most 5,000 alerts per step. Returns the seconds until
-- the next step.
CREATE OR REPLACE FUNCTION _prune_alerts(t timestamptz)
RETURNS float8
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  most int := 5000;
  number int;
BEGIN
  WITH old AS (
    DELETE FROM alerts
    WHERE ctid = ANY (ARRAY(
      SELECT a.ctid FROM alerts a WHERE a.cleared_at < t - interval '90 days' LIMIT most))
    RETURNING id)
  DELETE FROM alert_deliveries d USING old o WHERE d.alert = o.id;
  GET DIAGNOSTICS number = ROW_COUNT;
  DELETE FROM alert_deliveries d
  WHERE d.alert IS NULL
    AND d.created_at < t - interval '90 days';
  DELETE FROM silences s WHERE s.until < t - interval '7 days';
  DELETE FROM alert_events e WHERE e.at < t - interval '1 day';
  RETURN CASE WHEN number >= most THEN 0.01 ELSE 3600 END;
END $$;

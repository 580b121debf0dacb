-- after: alert_finding
-- Finds what may be wrong with tables, other sessions, chores and pauses.
CREATE OR REPLACE FUNCTION _find_upkeep_alerts(t timestamptz)
RETURNS SETOF alert_finding
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY SELECT * FROM _find_table_alerts(t);
  RETURN QUERY
    SELECT
      'old_transaction', coalesce(a.pid::text, 'prepared ' || a.gid), NULL::text, a.seconds,
      NULL::float8,
      format('%s has a transaction open for %s s', a.what, round(a.seconds)), '{}'::jsonb
    FROM (
      SELECT
        s.pid, NULL AS gid, extract(epoch FROM clock_timestamp() - s.xact_start)::float8 AS seconds,
        format('session %s (%s of %s)', s.pid, s.application_name, s.usename) AS what
      FROM pg_stat_activity s
      WHERE s.datname = current_database()
        AND s.xact_start < clock_timestamp() - interval '10 seconds'
        AND (s.backend_xmin IS NOT NULL OR s.backend_xid IS NOT NULL)
        AND s.backend_type = 'client backend'
      UNION ALL
      SELECT
        NULL, p.gid, extract(epoch FROM clock_timestamp() - p.prepared)::float8,
        'the prepared transaction ' || p.gid
      FROM pg_prepared_xacts p
      WHERE p.database = current_database()) a
    ORDER BY a.seconds DESC
    LIMIT 100;
  RETURN QUERY
    SELECT
      'chores', m.chore, NULL::text, extract(epoch FROM t - m.due_at)::float8, NULL::float8,
      format('the chore %s is late by %s', m.chore, _show_distance(m.due_at, t)),
      jsonb_strip_nulls(jsonb_build_object('error', m.error))
    FROM chore_marks m
    WHERE m.due_at < t
      AND m.last_at IS NOT NULL
      AND m.chore <> 'observer'
      AND (m.chore <> 'tallies' OR EXISTS (SELECT FROM node_counts));
  RETURN QUERY
    SELECT
      'chores', m.chore, NULL::text, NULL::float8, NULL::float8,
      format('the chore %s fails: %s', m.chore, m.error), jsonb_build_object('error', m.error)
    FROM chore_marks m
    WHERE m.error IS NOT NULL
      AND m.due_at >= t
      AND m.chore <> 'verify';
  RETURN QUERY
    SELECT
      'verify', '(all)', NULL::text, NULL::float8, NULL::float8, m.error, '{}'::jsonb
    FROM chore_marks m
    WHERE m.chore = 'verify'
      AND m.error IS NOT NULL;
  RETURN QUERY
    SELECT
      'forgotten_pause', concat_ws(' ', 'queue ' || p.queue, 'type ' || p.type), NULL::text,
      extract(epoch FROM t - p.at)::float8, NULL::float8,
      format(
        '%s is paused since %s by %s%s', concat_ws(' ', 'queue ' || p.queue, 'type ' || p.type),
        p.at, p.by, coalesce(': ' || p.reason, '')),
      '{}'::jsonb
    FROM pauses p
    WHERE p.at < t
    ORDER BY p.at
    LIMIT 100;
END $$;

-- Finds tables of the history without partitions for the next two days (the slots: for the month in
-- two days), with days that retention should have dropped, or with rows in a default partition.
CREATE OR REPLACE FUNCTION _find_table_alerts(t timestamptz)
RETURNS SETOF alert_finding
LANGUAGE plpgsql STABLE AS $$
DECLARE
  day timestamp := (t + interval '2 days') AT TIME ZONE 'UTC';
BEGIN
  RETURN QUERY
    SELECT
      'partitions', p.parent, NULL::text, NULL::float8, NULL::float8,
      format('table %s has no partition for %s', p.parent, day::date), '{}'::jsonb
    FROM (
      VALUES
        ('finished_succeeded', '_YYYYMMDD'), ('finished_otherwise', '_YYYYMMDD'),
        ('attempts', '_YYYYMMDD'), ('slots', '_YYYYMM')) p(parent, pattern)
    WHERE to_regclass(quote_ident(p.parent || to_char(day, p.pattern))) IS NULL;
  RETURN QUERY
    SELECT
      'retention', k.parent, NULL::text, NULL::float8, NULL::float8,
      format(
        '%s days of %s are kept that retention should have dropped, the first is %s', e.days,
        k.parent, e.oldest),
      '{}'::jsonb
    FROM (
      SELECT substr(m.chore, 7) AS parent, m.pace * interval '1 second' AS keep
      FROM chore_marks m
      WHERE starts_with(m.chore, 'prune ')) k
    CROSS JOIN LATERAL (
      SELECT count(*) AS days, min(x.name) AS oldest
      FROM _list_expired_days(k.parent, t - k.keep - interval '2 days') x) e
    WHERE e.days > 0;
  RETURN QUERY
    SELECT
      'retention', d.parent || ' (archive)', NULL::text, NULL::float8, NULL::float8,
      format(
        '%s days of %s wait to be archived, the first is %s', count(*), d.parent, min(d.name)),
      '{}'::jsonb
    FROM _list_detached_days() d
    JOIN chore_marks m ON m.chore = 'prune ' || d.parent
    WHERE to_date(right(d.name, 8), 'YYYYMMDD')
      < t - m.pace * interval '1 second' - interval '2 days'
    GROUP BY d.parent;
  RETURN QUERY
    SELECT
      'default_rows', d.parent, NULL::text, NULL::float8, NULL::float8,
      format('%s_default has rows, because their days had no partition', d.parent), '{}'::jsonb
    FROM (
      VALUES
        ('finished_succeeded', EXISTS (SELECT FROM finished_succeeded_default)),
        ('finished_otherwise', EXISTS (SELECT FROM finished_otherwise_default)),
        ('attempts', EXISTS (SELECT FROM attempts_default)),
        ('slots', EXISTS (SELECT FROM slots_default))) d(parent, has_rows)
    WHERE d.has_rows;
END $$;

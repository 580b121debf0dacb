-- Counts each hour from history, soon after its end, and puts the exact figures in the place of
-- those that nodes have reported: workers in psql report nothing, and a node that was killed does
-- not report its last seconds. Waits until all transactions have ended that may still write ends of
-- that hour. A step counts a slice of the hour that takes about 20 ms, into rows of the grain
-- `counting`, in the same transaction as the mark: so a crash repeats nothing and loses nothing. An
-- hour with more than five million ends stays as reported. Returns the seconds until the next step.
CREATE OR REPLACE FUNCTION _count_history(t timestamptz)
RETURNS float8
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  m chore_marks;
  hour timestamptz;
  slice_end timestamptz;
  began timestamptz := clock_timestamp();
BEGIN
  SELECT * INTO m FROM chore_marks x WHERE x.chore = 'history';
  m.until := coalesce(m.until, date_bin('1 hour', t, _figures_origin()));
  hour := date_bin('1 hour', m.until, _figures_origin());
  IF t < hour + interval '1 hour' THEN
    m.unsettled_before := NULL;
  ELSIF m.unsettled_before IS NULL THEN
    m.unsettled_before := pg_snapshot_xmax(pg_current_snapshot());
    m.pace := 10;
  ELSIF _is_hour_too_large(hour) THEN
    m.until := hour + interval '1 hour';
    m.unsettled_before := NULL;
  ELSIF pg_snapshot_xmin(pg_current_snapshot()) >= m.unsettled_before THEN
    slice_end := least(hour + interval '1 hour', m.until + m.pace * interval '1 second');
    PERFORM _count_slice(hour, m.until, slice_end);
    m.until := slice_end;
    m.pace := _choose_pace(m.pace, extract(epoch FROM clock_timestamp() - began)::float8);
    IF slice_end = hour + interval '1 hour' THEN
      PERFORM _replace_hour(hour);
      m.unsettled_before := NULL;
    END IF;
  END IF;
  UPDATE chore_marks x
  SET until = m.until, unsettled_before = m.unsettled_before, pace = m.pace
  WHERE x.chore = 'history';
  RETURN CASE
      WHEN t < date_bin('1 hour', m.until, _figures_origin()) + interval '1 hour'
        THEN extract(epoch FROM
          date_bin('1 hour', m.until, _figures_origin()) + interval '1 hour' - t)::float8 + 1
      ELSE 0.01
    END;
END $$;

-- Returns how many seconds of history the next slice has, so that it takes about 20 ms.
CREATE OR REPLACE FUNCTION _choose_pace(pace float8, took float8)
RETURNS float8
LANGUAGE sql IMMUTABLE
RETURN least(3600, greatest(1, pace * least(4, greatest(0.1, 0.02 / greatest(took, 0.0001)))));

CREATE OR REPLACE FUNCTION _is_hour_too_large(hour timestamptz)
RETURNS boolean
LANGUAGE sql STABLE
AS $$
  SELECT coalesce(sum(r.succeeded + r.skipped + r.failed + r.timed_out), 0) > 5000000
  FROM rollups r
  WHERE r.grain = 'hour'
    AND r.dimension = 'all'
    AND r.at = hour
$$;

-- Adds what has ended in this slice of an hour to the rows of the grain `counting`. A run counts by
-- its outcome; `dead` and `canceled` are jobs, whether they ran or not.
CREATE OR REPLACE FUNCTION _count_slice(hour timestamptz, since timestamptz, until timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  WITH ends AS (
      SELECT
        f.queue, f.type, f.tenant, 'succeeded' AS outcome, f.run_at, f.started_at,
        f.finished_at AS at
      FROM finished_jobs f
      WHERE f.state = 'succeeded'
        AND f.outcome IS NULL
        AND f.finished_at >= since
        AND f.finished_at < until
      UNION ALL
      SELECT a.queue, a.type, a.tenant, a.outcome, a.due_at, a.started_at, a.ended_at
      FROM attempts a
      WHERE a.outcome NOT IN ('canceled', 'released')
        AND a.ended_at >= since
        AND a.ended_at < until
      UNION ALL
      SELECT f.queue, f.type, f.tenant, f.state, NULL, NULL, f.finished_at
      FROM finished_jobs f
      WHERE f.state IN ('dead', 'canceled')
        AND f.finished_at >= since
        AND f.finished_at < until),
    kinds AS MATERIALIZED (
      SELECT
        e.queue, e.type, e.tenant,
        count(*) FILTER (WHERE e.outcome = 'succeeded') AS succeeded,
        count(*) FILTER (WHERE e.outcome = 'skipped') AS skipped,
        count(*) FILTER (WHERE e.outcome = 'failed') AS failed,
        count(*) FILTER (WHERE e.outcome = 'timed_out') AS timed_out,
        count(*) FILTER (WHERE e.outcome = 'lost') AS lost,
        count(*) FILTER (WHERE e.outcome = 'snoozed') AS snoozed,
        count(*) FILTER (WHERE e.outcome = 'dead') AS dead,
        count(*) FILTER (WHERE e.outcome = 'canceled') AS canceled,
        coalesce(sum(extract(epoch FROM e.at - e.started_at)), 0)::float8 AS run_seconds,
        coalesce(sum(greatest(0, extract(epoch FROM e.started_at - e.run_at))), 0)::float8
          AS wait_seconds
      FROM ends e
      GROUP BY 1, 2, 3)
  INSERT INTO rollups AS r (
    grain, dimension, at, name, tenant, succeeded, skipped, failed, timed_out, lost, snoozed, dead,
    canceled, run_seconds, wait_seconds)
  SELECT
    'counting', x.dimension, hour, x.name, CASE WHEN x.dimension = 'tenant' THEN x.name END,
    sum(k.succeeded), sum(k.skipped), sum(k.failed), sum(k.timed_out), sum(k.lost), sum(k.snoozed),
    sum(k.dead), sum(k.canceled), sum(k.run_seconds), sum(k.wait_seconds)
  FROM kinds k
  CROSS JOIN LATERAL (
    VALUES ('all', ''), ('queue', k.queue), ('type', k.type), ('tenant', k.tenant))
    x(dimension, name)
  GROUP BY 2, 4
  ON CONFLICT (grain, dimension, at, name) DO UPDATE
  SET succeeded = r.succeeded + EXCLUDED.succeeded,
    skipped = r.skipped + EXCLUDED.skipped,
    failed = r.failed + EXCLUDED.failed,
    timed_out = r.timed_out + EXCLUDED.timed_out,
    lost = r.lost + EXCLUDED.lost,
    snoozed = r.snoozed + EXCLUDED.snoozed,
    dead = r.dead + EXCLUDED.dead,
    canceled = r.canceled + EXCLUDED.canceled,
    run_seconds = r.run_seconds + EXCLUDED.run_seconds,
    wait_seconds = r.wait_seconds + EXCLUDED.wait_seconds;
END $$;

-- Puts what was counted in the place of the figures of an hour. If rows of that hour may have been
-- deleted from history since, by purge(), by an erasure or by retention, keeps the larger figures,
-- and does not call them counted.
CREATE OR REPLACE FUNCTION _replace_hour(hour timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  IF _may_lack_rows(hour) THEN
    INSERT INTO rollups AS r (
      grain, dimension, at, name, tenant, succeeded, skipped, failed, timed_out, lost, snoozed,
      dead, canceled, run_seconds, wait_seconds)
    SELECT
      'hour', c.dimension, c.at, c.name, c.tenant, c.succeeded, c.skipped, c.failed, c.timed_out,
      c.lost, c.snoozed, c.dead, c.canceled, c.run_seconds, c.wait_seconds
    FROM rollups c
    WHERE c.grain = 'counting'
      AND c.at = hour
    ON CONFLICT (grain, dimension, at, name) DO UPDATE
    SET succeeded = greatest(r.succeeded, EXCLUDED.succeeded),
      skipped = greatest(r.skipped, EXCLUDED.skipped),
      failed = greatest(r.failed, EXCLUDED.failed),
      timed_out = greatest(r.timed_out, EXCLUDED.timed_out),
      lost = greatest(r.lost, EXCLUDED.lost),
      snoozed = greatest(r.snoozed, EXCLUDED.snoozed),
      dead = greatest(r.dead, EXCLUDED.dead),
      canceled = greatest(r.canceled, EXCLUDED.canceled),
      run_seconds = greatest(r.run_seconds, EXCLUDED.run_seconds),
      wait_seconds = greatest(r.wait_seconds, EXCLUDED.wait_seconds),
      is_counted = false;
    DELETE FROM rollups r WHERE r.grain = 'counting' AND r.at = hour;
  ELSE
    DELETE FROM rollups r WHERE r.grain = 'hour' AND r.at = hour;
    UPDATE rollups r
    SET grain = 'hour', is_counted = true
    WHERE r.grain = 'counting'
      AND r.at = hour;
  END IF;
  PERFORM _join_rare_names(hour);
END $$;

-- Says whether rows of this hour may have been deleted from history.
CREATE OR REPLACE FUNCTION _may_lack_rows(hour timestamptz)
RETURNS boolean
LANGUAGE sql STABLE
AS $$
  SELECT EXISTS (
      SELECT
      FROM audit a
      WHERE a.at >= hour
        AND a.action IN ('purge', 'erase_tenant'))
    OR EXISTS (
      SELECT
      FROM unnest('{finished_succeeded,finished_otherwise,attempts}'::text[]) h(parent)
      CROSS JOIN LATERAL (
        SELECT min(right(c.relname, 8)) AS day
        FROM pg_inherits i
        JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = h.parent::regclass
          AND c.relname NOT LIKE '%\_default') first
      WHERE first.day > to_char(hour AT TIME ZONE 'UTC', 'YYYYMMDD'))
$$;

-- Keeps the 1,000 names with most ends of each dimension, and adds the others up as (other).
CREATE OR REPLACE FUNCTION _join_rare_names(hour timestamptz)
RETURNS void
LANGUAGE sql VOLATILE
AS $$
  WITH ranked AS (
      SELECT
        r.dimension, r.name,
        row_number() OVER (
          PARTITION BY r.dimension
          ORDER BY r.succeeded + r.skipped + r.failed + r.timed_out + r.lost DESC, r.name) AS place
      FROM rollups r
      WHERE r.grain = 'hour'
        AND r.at = hour),
    rare AS (
      DELETE FROM rollups r
      USING ranked k
      WHERE r.grain = 'hour'
        AND r.at = hour
        AND r.dimension = k.dimension
        AND r.name = k.name
        AND (k.place > 1000 OR k.name = '(other)')
      RETURNING r.*)
  INSERT INTO rollups (
    grain, dimension, at, name, succeeded, skipped, failed, timed_out, lost, snoozed, dead,
    canceled, run_seconds, wait_seconds, is_counted)
  SELECT
    'hour', x.dimension, hour, '(other)', sum(x.succeeded), sum(x.skipped), sum(x.failed),
    sum(x.timed_out), sum(x.lost), sum(x.snoozed), sum(x.dead), sum(x.canceled),
    sum(x.run_seconds), sum(x.wait_seconds), bool_and(x.is_counted)
  FROM rare x
  GROUP BY 2
$$;

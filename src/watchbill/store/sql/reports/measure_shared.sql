-- after: group_list, limit_list
-- Measures nodes, by app: those that have not left, those that were lost in the last hour, how many
-- handlers they may run, and the oldest beat. `silent` ones have sent no beat within their lease:
-- if no node lives, none declares them lost.
CREATE OR REPLACE FUNCTION _measure_nodes(t timestamptz)
RETURNS TABLE (metric text, labels jsonb, value float8)
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
    SELECT
      'nodes', jsonb_build_object('app', coalesce(x.app, ''), 'state', x.state), count(*)::float8
    FROM (
      SELECT n.app, CASE WHEN b.at + n.lease <= t THEN 'silent' ELSE n.state END AS state
      FROM nodes n
      LEFT JOIN beats b USING (epoch)
      WHERE n.state IN ('active', 'draining')
        OR (n.state = 'lost' AND n.ended_at > t - interval '1 hour')) x
    GROUP BY x.app, x.state
    ORDER BY count(*) DESC
    LIMIT 30;
  RETURN QUERY
    SELECT w.metric, jsonb_build_object('app', coalesce(x.app, '')), w.value
    FROM (
      SELECT
        n.app, sum(n.capacity)::float8 AS capacity,
        max(extract(epoch FROM t - b.at))::float8 AS age
      FROM nodes n
      JOIN beats b USING (epoch)
      WHERE n.state IN ('active', 'draining')
      GROUP BY n.app
      ORDER BY count(*) DESC
      LIMIT 10) x
    CROSS JOIN LATERAL (
      VALUES
        ('capacity', x.capacity), ('oldest_beat_seconds', greatest(0, x.age))) w(metric, value)
    WHERE w.value IS NOT NULL;
END $$;

-- Measures pauses, and the first 30 limits by name: how many jobs hold a place, how many may for
-- each key, and how many wait, counted up to 1,000.
CREATE OR REPLACE FUNCTION _measure_flow(t timestamptz)
RETURNS TABLE (metric text, labels jsonb, value float8)
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
    SELECT
      'paused_seconds',
      jsonb_build_object('queue', coalesce(p.queue, ''), 'type', coalesce(p.type, '')),
      greatest(0, extract(epoch FROM t - p.at))::float8
    FROM pauses p
    ORDER BY p.at
    LIMIT 30;
  RETURN QUERY
    SELECT 'limit_' || w.word, jsonb_build_object('limit', l.name), w.number::float8
    FROM (SELECT x.name, x.max FROM limits x ORDER BY x.name LIMIT 30) l
    CROSS JOIN LATERAL _limit_key_range(l.name) r
    CROSS JOIN LATERAL (
      VALUES
        ('max', l.max::bigint),
        ('held', (
          SELECT count(*)
          FROM (
            SELECT
            FROM holds h
            WHERE h.key = r.exact
              OR (h.key >= r.low AND h.key < r.high)
            LIMIT 10000) y)),
        ('waiting', (
          SELECT count(*)
          FROM (
            SELECT
            FROM jobs j
            WHERE j.wait = 'parked'
              AND (j.wait_key = r.exact OR (j.wait_key >= r.low AND j.wait_key < r.high))
            LIMIT 1000) y))) w(word, number)
    WHERE w.number IS NOT NULL;
END $$;

-- Measures the first 10 token groups by name.
CREATE OR REPLACE FUNCTION _measure_groups(t timestamptz, now timestamptz)
RETURNS TABLE (metric text, labels jsonb, value float8)
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
    WITH listed AS MATERIALIZED (
      SELECT g.name, g.total, g.owned, g.moving, g.term, g.pins_without_match
      FROM group_list(now => now) g
      ORDER BY g.name
      LIMIT 10)
    SELECT
      'tokens', jsonb_build_object('group', l.name, 'state', w.state), w.number::float8
    FROM listed l
    CROSS JOIN LATERAL (
      VALUES
        ('owned', l.owned), ('unowned', l.total - l.owned), ('moving', l.moving)) w(state, number)
    UNION ALL
    SELECT w.metric, jsonb_build_object('group', l.name), w.number::float8
    FROM listed l
    CROSS JOIN LATERAL (
      VALUES
        ('leader_term', l.term),
        ('pins_unmatched', l.pins_without_match),
        ('rebalances_last_hour', (
          SELECT count(*)
          FROM rebalances r
          WHERE r.token_group = l.name
            AND r.at > t - interval '1 hour'))) w(metric, number)
    WHERE w.number IS NOT NULL;
END $$;

-- Measures alerts that fire, chores that are late or fail, and the oldest transaction.
CREATE OR REPLACE FUNCTION _measure_upkeep(t timestamptz)
RETURNS TABLE (metric text, labels jsonb, value float8)
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
    SELECT
      'alerts', jsonb_build_object('rule', a.rule, 'severity', a.severity), count(*)::float8
    FROM alerts a
    WHERE a.cleared_at IS NULL
      AND a.state = 'firing'
    GROUP BY a.rule, a.severity;
  RETURN QUERY
    SELECT w.metric, jsonb_build_object('chore', m.chore), w.number::float8
    FROM chore_marks m
    CROSS JOIN LATERAL (
      VALUES
        ('chore_late_seconds', greatest(0, extract(epoch FROM t - m.due_at))),
        ('chore_failing', (m.error IS NOT NULL)::int)) w(metric, number)
    WHERE m.last_at IS NOT NULL
      AND m.due_at < 'infinity';
  RETURN QUERY
    SELECT
      'oldest_transaction_seconds', '{}'::jsonb,
      coalesce(max(extract(epoch FROM clock_timestamp() - s.xact_start)), 0)::float8
    FROM pg_stat_activity s
    WHERE s.datname = current_database()
      AND (s.backend_xmin IS NOT NULL OR s.backend_xid IS NOT NULL)
      AND s.backend_type = 'client backend'
      AND s.pid <> pg_backend_pid();
END $$;

-- Measures the size of jobs and of the history, as of the last vacuum or ANALYZE of each partition,
-- and for how many days ahead there are partitions.
CREATE OR REPLACE FUNCTION _measure_tables(t timestamptz)
RETURNS TABLE (metric text, labels jsonb, value float8)
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
    WITH part AS MATERIALIZED (
      SELECT p.name AS parent, c.oid, c.relname, c.relpages, c.reltoastrelid
      FROM (
        VALUES
          ('finished_succeeded'), ('finished_otherwise'), ('attempts'), ('job_logs')) p(name)
      JOIN pg_inherits i ON i.inhparent = p.name::regclass
      JOIN pg_class c ON c.oid = i.inhrelid
      UNION ALL
      SELECT 'jobs', c.oid, c.relname, c.relpages, c.reltoastrelid
      FROM pg_class c
      WHERE c.oid = 'jobs'::regclass)
    SELECT
      'table_bytes', jsonb_build_object('table', p.parent),
      sum(p.relpages + coalesce(x.relpages, 0) + coalesce(i.pages, 0))::float8
        * current_setting('block_size')::int
    FROM part p
    LEFT JOIN pg_class x ON x.oid = p.reltoastrelid
    LEFT JOIN LATERAL (
      SELECT sum(c.relpages) AS pages
      FROM pg_index n
      JOIN pg_class c ON c.oid = n.indexrelid
      WHERE n.indrelid = p.oid) i ON true
    GROUP BY p.parent
    UNION ALL
    SELECT
      'partition_days_ahead', jsonb_build_object('table', p.parent),
      max(to_date(right(p.relname, 8), 'YYYYMMDD')) - (t AT TIME ZONE 'UTC')::date
    FROM part p
    WHERE p.relname ~ '_[0-9]{8}$'
    GROUP BY p.parent;
END $$;

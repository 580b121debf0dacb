-- after: sample_list
-- Measures the backlog of the 100 queues with most jobs, from the newest sample. States without
-- jobs have no series, except running and ready.
CREATE OR REPLACE FUNCTION _measure_queues(t timestamptz)
RETURNS TABLE (metric text, labels jsonb, value float8)
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
    WITH sampled AS MATERIALIZED (
      SELECT
        s.*,
        CASE
          WHEN row_number() OVER (
            ORDER BY s.running + s.ready + s.scheduled + s.retrying + s.limited + s.paused
              + s.unsupported + s.unmatched + s.blocked DESC, s.name) <= 100 THEN s.name
          ELSE '(other)'
        END AS queue
      FROM samples s
      WHERE s.grain IN ('ten_seconds', 'minute', 'hour')
        AND s.dimension = 'queue'
        AND s.at = _find_last_sample('queue'))
    SELECT 'queue_jobs', jsonb_build_object('queue', c.queue, 'state', c.state), c.jobs::float8
    FROM (
      SELECT s.queue, w.state, sum(w.jobs) AS jobs
      FROM sampled s
      CROSS JOIN LATERAL (
        VALUES
          ('running', s.running), ('ready', s.ready), ('scheduled', s.scheduled),
          ('retrying', s.retrying), ('limited', s.limited), ('paused', s.paused),
          ('unsupported', s.unsupported), ('unmatched', s.unmatched),
          ('blocked', s.blocked)) w(state, jobs)
      GROUP BY 1, 2) c
    WHERE c.jobs > 0
      OR c.state IN ('running', 'ready')
    UNION ALL
    SELECT
      'queue_oldest_seconds', jsonb_build_object('queue', s.queue),
      greatest(0, extract(epoch FROM t - min(s.oldest)))::float8
    FROM sampled s
    WHERE s.oldest IS NOT NULL
    GROUP BY s.queue
    UNION ALL
    SELECT 'sample_age_seconds', '{}', greatest(0, extract(epoch FROM t - x.at))::float8
    FROM (SELECT _find_last_sample('all') AS at) x
    WHERE x.at IS NOT NULL;
END $$;

-- Measures what has ended in the last hour, as nodes have reported it, of the 30 queues and the 30
-- types with most runs.
CREATE OR REPLACE FUNCTION _measure_endings(t timestamptz)
RETURNS TABLE (metric text, labels jsonb, value float8)
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
    WITH figures AS (
      SELECT r.*
      FROM rollups r
      WHERE r.grain = 'minute'
        AND r.dimension = 'queue'
        AND r.at > t - interval '1 hour'
      UNION ALL
      SELECT r.*
      FROM rollups r
      WHERE r.grain = 'ten_minutes'
        AND r.dimension = 'type'
        AND r.at > t - interval '1 hour'),
    -- A sum of float8 takes a fifth of the time of one of bigint, which is numeric.
    sums AS (
      SELECT
        f.dimension, f.name, sum(f.succeeded::float8) AS succeeded,
        sum(f.skipped::float8) AS skipped, sum(f.failed::float8) AS failed,
        sum(f.timed_out::float8) AS timed_out, sum(f.lost::float8) AS lost,
        sum(f.snoozed::float8) AS snoozed, sum(f.dead::float8) AS dead,
        sum(f.canceled::float8) AS canceled, sum(f.run_seconds) AS run_seconds,
        sum(f.wait_seconds) AS wait_seconds,
        sum((f.succeeded + f.skipped + f.failed + f.timed_out + f.lost + f.snoozed)::float8) AS runs
      FROM figures f
      GROUP BY 1, 2),
    ended AS MATERIALIZED (
      SELECT
        s.*,
        CASE
          WHEN row_number() OVER (PARTITION BY s.dimension ORDER BY s.runs DESC, s.name) <= 30
            THEN s.name
          ELSE '(other)'
        END AS label
      FROM sums s)
    SELECT
      c.dimension || '_ended_last_hour',
      jsonb_build_object(c.dimension, c.label, 'outcome', c.outcome), c.number
    FROM (
      SELECT e.dimension, e.label, w.outcome, sum(w.number) AS number
      FROM ended e
      CROSS JOIN LATERAL (
        VALUES
          ('succeeded', e.succeeded), ('skipped', e.skipped), ('failed', e.failed),
          ('timed_out', e.timed_out), ('lost', e.lost), ('snoozed', e.snoozed), ('dead', e.dead),
          ('canceled', e.canceled)) w(outcome, number)
      GROUP BY 1, 2, 3) c
    WHERE c.number > 0
      OR c.outcome IN ('succeeded', 'failed')
    UNION ALL
    SELECT
      e.dimension || w.metric, jsonb_build_object(e.dimension, e.label),
      sum(w.seconds) / sum(e.runs)
    FROM ended e
    CROSS JOIN LATERAL (
      VALUES
        ('_mean_run_seconds', e.run_seconds), ('_mean_wait_seconds', e.wait_seconds)) w(metric,
        seconds)
    WHERE e.runs > 0
    GROUP BY e.dimension, e.label, w.metric;
END $$;

-- Measures the 20 tenants with most unfinished jobs, from the newest sample.
CREATE OR REPLACE FUNCTION _measure_tenants()
RETURNS TABLE (metric text, labels jsonb, value float8)
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
    WITH sampled AS MATERIALIZED (
      SELECT
        s.name, s.running,
        s.running + s.ready + s.scheduled + s.retrying + s.limited + s.paused + s.unsupported
          + s.unmatched + s.blocked AS unfinished
      FROM samples s
      WHERE s.grain IN ('ten_seconds', 'minute', 'hour')
        AND s.dimension = 'tenant'
        AND s.at = _find_last_sample('tenant')),
    listed AS (
      SELECT
        s.*,
        CASE
          WHEN row_number() OVER (ORDER BY s.unfinished DESC, s.name) <= 20 THEN s.name
          ELSE '(other)'
        END AS tenant
      FROM sampled s)
    SELECT 'tenant_' || w.word, jsonb_build_object('tenant', l.tenant), sum(w.jobs)::float8
    FROM listed l
    CROSS JOIN LATERAL (
      VALUES ('running', l.running), ('unfinished', l.unfinished)) w(word, jobs)
    GROUP BY l.tenant, w.word;
END $$;

-- Lists the queues that the newest sample has, that live nodes serve, that have rules or are
-- paused, up to 1,000: what their jobs wait for, how many were ready in each of the last `minutes`
-- (0 where no sample was taken), what has ended in the last 5 minutes and in this time, and who
-- serves and who pauses them. With `name`, only that queue. Reads figures only, and locks nothing.
CREATE OR REPLACE FUNCTION _list_queue_figures(
  name text DEFAULT NULL,
  minutes int DEFAULT 60,
  now timestamptz DEFAULT NULL
)
RETURNS TABLE (
  queue text,
  running bigint,
  ready bigint,
  scheduled bigint,
  retrying bigint,
  limited bigint,
  paused bigint,
  unsupported bigint,
  unmatched bigint,
  blocked bigint,
  oldest timestamptz,
  is_estimate boolean,
  sampled_at timestamptz,
  trend bigint[],
  ended_lately bigint,
  ended bigint,
  failed bigint,
  dead bigint,
  run_seconds float8,
  wait_seconds float8,
  nodes bigint,
  draining_nodes bigint,
  max int,
  fair_by text,
  token_group text,
  paused_at timestamptz,
  paused_by text,
  pause_reason text
)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  this_minute timestamptz := date_bin('1 minute', _clock(now), _figures_origin());
  first timestamptz;
  newest timestamptz := _find_last_sample('queue');
BEGIN
  minutes := least(greatest(minutes, 1), 360);
  first := this_minute - make_interval(mins => minutes - 1);
  RETURN QUERY
    WITH live AS MATERIALIZED (
        SELECT n.state, n.queues FROM nodes n WHERE n.state IN ('active', 'draining')),
      sampled AS MATERIALIZED (
        SELECT s.*
        FROM samples s
        WHERE s.dimension = 'queue'
          AND s.grain IN ('ten_seconds', 'minute', 'hour')
          AND s.at = newest
          AND (name IS NULL OR s.name = name)),
      listed AS MATERIALIZED (
        SELECT s.name AS queue FROM sampled s
        UNION
        SELECT q.name FROM queues q WHERE name IS NULL OR q.name = name
        UNION
        SELECT p.queue
        FROM pauses p
        WHERE p.type IS NULL
          AND (name IS NULL OR p.queue = name)
        UNION
        SELECT u.queue
        FROM live l
        CROSS JOIN unnest(l.queues) u(queue)
        WHERE name IS NULL OR u.queue = name
        ORDER BY 1
        LIMIT 1000),
      minute AS (
        SELECT
          s.name,
          date_bin('1 minute', s.at, _figures_origin()) AS at,
          max(s.ready + s.limited + s.paused + s.unsupported + s.unmatched) AS waiting
        FROM samples s
        WHERE s.dimension = 'queue'
          AND s.grain IN ('minute', 'hour')
          AND s.at >= first
          AND (name IS NULL OR s.name = name)
        GROUP BY 1, 2),
      trends AS MATERIALIZED (
        SELECT l.queue, array_agg(coalesce(m.waiting, 0) ORDER BY g.at) AS trend
        FROM listed l
        CROSS JOIN generate_series(first, this_minute, interval '1 minute') g(at)
        LEFT JOIN minute m ON m.name = l.queue AND m.at = g.at
        GROUP BY 1),
      figures AS MATERIALIZED (
        SELECT
          r.name,
          sum(r.succeeded + r.skipped + r.failed + r.timed_out + r.lost)
            FILTER (WHERE r.at >= this_minute - interval '5 minutes')::bigint AS ended_lately,
          sum(r.succeeded + r.skipped + r.failed + r.timed_out + r.lost)::bigint AS ended,
          sum(r.failed + r.timed_out + r.lost)::bigint AS failed,
          sum(r.dead)::bigint AS dead,
          sum(r.run_seconds) AS run_seconds,
          sum(r.wait_seconds) AS wait_seconds
        FROM rollups r
        WHERE r.grain = 'minute'
          AND r.dimension = 'queue'
          AND r.at >= first
          AND (name IS NULL OR r.name = name)
        GROUP BY 1)
    SELECT
      l.queue, s.running, s.ready, s.scheduled, s.retrying, s.limited, s.paused, s.unsupported,
      s.unmatched, s.blocked, s.oldest, s.is_estimate, s.at, t.trend,
      f.ended_lately, f.ended, f.failed, f.dead, f.run_seconds, f.wait_seconds,
      (SELECT count(*) FROM live x WHERE x.queues IS NULL OR l.queue = ANY (x.queues)),
      (
        SELECT count(*)
        FROM live x
        WHERE x.state = 'draining'
          AND (x.queues IS NULL OR l.queue = ANY (x.queues))),
      q.max, q.fair_by, q.token_group, p.at, p.by, p.reason
    FROM listed l
    LEFT JOIN sampled s ON s.name = l.queue
    LEFT JOIN trends t ON t.queue = l.queue
    LEFT JOIN figures f ON f.name = l.queue
    LEFT JOIN queues q ON q.name = l.queue
    LEFT JOIN pauses p ON p.queue = l.queue AND p.type IS NULL
    ORDER BY l.queue;
END $$;

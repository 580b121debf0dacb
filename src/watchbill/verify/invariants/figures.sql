-- Invariants of figures and of bulk operations.

-- The hours are the same in both looks of a day. Leaves out hours with many ends, because to count
-- them takes long, and hours of which rows may have been deleted.
-- name: counted_hour_equals_history
-- kind: E
-- says: an hour that was counted has as many successes and failures as history
SELECT
  'hour ' || r.at,
  format(
    'it has %s successes and %s failures, and history has %s and %s', r.succeeded, r.failed,
    h.succeeded, h.failed),
  r.xmin::text || r.ctid
FROM (
  SELECT x.*, x.xmin, x.ctid
  FROM {schema}.rollups x
  WHERE x.grain = 'hour'
    AND x.dimension = 'all'
    AND x.is_counted
    AND x.succeeded + x.failed < 20000
    AND NOT {schema}._may_lack_rows(x.at)
  ORDER BY md5(x.at::text || current_date)
  LIMIT 3) r
CROSS JOIN LATERAL (
  SELECT
    count(*) FILTER (WHERE e.outcome = 'succeeded') AS succeeded,
    count(*) FILTER (WHERE e.outcome = 'failed') AS failed
  FROM (
    SELECT 'succeeded'
    FROM {schema}.finished_jobs f
    WHERE f.state = 'succeeded'
      AND f.outcome IS NULL
      AND f.finished_at >= r.at
      AND f.finished_at < r.at + interval '1 hour'
    UNION ALL
    SELECT a.outcome
    FROM {schema}.attempts a
    WHERE a.ended_at >= r.at
      AND a.ended_at < r.at + interval '1 hour') e(outcome)) h
WHERE (r.succeeded, r.failed) <> (h.succeeded, h.failed)

-- name: operation_adds_up
-- kind: S
-- says: a bulk operation has done, skipped or failed all that it has seen
SELECT
  'operation ' || o.id,
  format('it has seen %s jobs, and %s were done, skipped or failed', o.seen, n.number)
FROM {schema}.bulk_operations o
CROSS JOIN LATERAL (SELECT o.done + o.skipped + o.failed AS number) n
WHERE o.seen <> n.number

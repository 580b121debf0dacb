-- Jobs by queue and state. Up to `cap` unfinished jobs are counted exactly; beyond that the counts are what the first `cap` showed, and `capped` says so:
-- an exact count of ten million rows takes seconds, and a counter kept at enqueue would serialise every producer.
CREATE OR REPLACE FUNCTION stats(cap int DEFAULT 100000, since interval DEFAULT '1 hour', now timestamptz DEFAULT NULL)
RETURNS TABLE (queue text, state text, count bigint, oldest timestamptz, capped boolean) LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(stats.now, clock());
BEGIN
  RETURN QUERY
    WITH seen AS MATERIALIZED (SELECT j.queue, CASE WHEN j.fence <> 0 THEN 'running' WHEN j.wait = 'blocked' THEN 'blocked' WHEN j.failed THEN 'failed'
        ELSE 'queued' END AS state, j.run_at FROM jobs j LIMIT stats.cap + 1),
      over AS (SELECT count(*) > stats.cap AS it FROM seen)
    SELECT s.queue, s.state, count(*), min(s.run_at), (SELECT it FROM over) FROM seen s GROUP BY 1, 2;
  RETURN QUERY
    WITH seen AS MATERIALIZED (SELECT f.queue, f.state, f.finished_at FROM finished_jobs f WHERE f.finished_at > t - stats.since LIMIT stats.cap + 1),
      over AS (SELECT count(*) > stats.cap AS it FROM seen)
    SELECT s.queue, s.state, count(*), min(s.finished_at), (SELECT it FROM over) FROM seen s GROUP BY 1, 2;
END $$;

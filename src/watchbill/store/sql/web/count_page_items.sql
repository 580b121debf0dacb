-- after: list_queue_figures
-- Counts what the rail of the dashboard leads to: live nodes, queues of the newest sample, up to
-- 1,000 groups of failures of the last six hours, operations under way. Locks nothing.
CREATE OR REPLACE FUNCTION _count_page_items(
  OUT now timestamptz,
  OUT nodes bigint,
  OUT queues bigint,
  OUT failures bigint,
  OUT operations bigint
)
LANGUAGE plpgsql STABLE AS $$
BEGIN
  now := _clock();
  nodes := (SELECT count(*) FROM nodes n WHERE n.state IN ('active', 'draining'));
  queues := (
    SELECT count(*)
    FROM samples s
    WHERE s.dimension = 'queue'
      AND s.grain IN ('ten_seconds', 'minute', 'hour')
      AND s.at = _find_last_sample('queue'));
  failures := (
    SELECT count(*)
    FROM (
      SELECT
      FROM failure_groups g
      WHERE g.last >= now - interval '6 hours'
      LIMIT 1000) x);
  operations := (
    SELECT count(*) FROM bulk_operations o WHERE o.state IN ('running', 'paused'));
END $$;

-- Lists what retention would remove now. Changes nothing. The number of rows of a partition is the
-- server's estimate; -1 if the partition was never analyzed.
CREATE OR REPLACE FUNCTION preview_retention(
  keep_succeeded interval DEFAULT '30 days',
  keep_otherwise interval DEFAULT '90 days',
  keep_audit interval DEFAULT '400 days',
  keep_nodes interval DEFAULT '400 days',
  now timestamptz DEFAULT NULL
)
RETURNS TABLE (what text, action text, row_count bigint, bytes bigint)
LANGUAGE plpgsql STABLE AS $$
DECLARE
  t timestamptz := _clock(now);
  keep_attempts interval := greatest(keep_succeeded, keep_otherwise);
BEGIN
  RETURN QUERY
    SELECT d.name, 'drop', c.reltuples::bigint, pg_total_relation_size(d.partition)
    FROM (
      VALUES
        ('finished_succeeded', keep_succeeded),
        ('finished_otherwise', keep_otherwise),
        ('attempts', keep_attempts),
        ('job_logs', keep_attempts)) p(parent, keep)
    CROSS JOIN LATERAL _list_expired_days(p.parent, t - p.keep) d
    JOIN pg_class c ON c.oid = d.partition
    ORDER BY 1;
  RETURN QUERY
    SELECT x.what, 'delete', x.row_count, NULL::bigint
    FROM (
      SELECT 'finished_succeeded_default', count(*)
      FROM finished_succeeded_default f
      WHERE f.finished_at < t - keep_succeeded
      UNION ALL
      SELECT 'finished_otherwise_default', count(*)
      FROM finished_otherwise_default f
      WHERE f.finished_at < t - keep_otherwise
      UNION ALL
      SELECT 'attempts_default', count(*)
      FROM attempts_default a
      WHERE a.ended_at < t - keep_attempts
      UNION ALL
      SELECT 'job_logs_default', count(*)
      FROM job_logs_default l
      WHERE l.ended_at < t - keep_attempts
      UNION ALL
      SELECT 'audit', count(*) FROM audit a WHERE a.at < t - keep_audit
      UNION ALL
      SELECT 'nodes', count(*)
      FROM nodes n
      WHERE n.ended_at < t - keep_nodes
        AND n.state IN ('left', 'lost')
      UNION ALL
      SELECT 'idempotency', count(*) FROM idempotency i WHERE i.expires_at <= t) x(what, row_count)
    WHERE x.row_count > 0;
END $$;

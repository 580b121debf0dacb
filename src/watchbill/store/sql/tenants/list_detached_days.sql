-- after: make_partitions
-- Lists days that were detached from the history and not archived yet, with their size in pages.
-- prune_history() detaches them. A crash may leave some, which any node archives later.
CREATE OR REPLACE FUNCTION _list_detached_days()
RETURNS TABLE (name text, parent text, pages bigint)
LANGUAGE plpgsql STABLE AS $$
BEGIN
  PERFORM _check_shared_change('_list_detached_days');
  RETURN QUERY
    SELECT
      c.relname::text, p.parent,
      pg_relation_size(c.oid) / current_setting('block_size')::int
    FROM (
      VALUES
        ('finished_succeeded'), ('finished_otherwise'), ('attempts'), ('job_logs')) p(parent)
    JOIN pg_class c ON c.relname ~ ('^' || p.parent || '_[0-9]{8}$')
    WHERE c.relnamespace = (SELECT j.relnamespace FROM pg_class j WHERE j.oid = 'jobs'::regclass)
      AND c.relkind = 'r'
      AND NOT c.relispartition
    ORDER BY c.relname;
END $$;

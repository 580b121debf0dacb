-- Summarizes the page ranges of the history that are full now, of the days that are written. Until
-- then every query by time reads them, and autovacuum comes late. Leaves the last range alone: an
-- index that had summarized it would be written by every settle(). Gives up a table that is being
-- vacuumed. Returns the seconds until the next step.
CREATE OR REPLACE FUNCTION _summarize_history(t timestamptz)
RETURNS float8
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '100ms'
AS $$
#variable_conflict use_variable
DECLARE
  pages_per_range int := 128; -- PostgreSQL's default, and that of our indexes
  done jsonb := (SELECT m.summarized FROM chore_marks m WHERE m.chore = 'summaries');
  kept jsonb := '{}';
  began timestamptz := clock_timestamp();
  found record;
  number int;
BEGIN
  FOR found IN
    SELECT
      i.indexrelid AS index, c.relname::text AS name,
      (pg_relation_size(i.indrelid) / current_setting('block_size')::int / pages_per_range)::int
        AS ranges
    FROM unnest('{finished_jobs,attempts}'::text[]) h(parent)
    CROSS JOIN LATERAL pg_partition_tree(h.parent::regclass) p
    JOIN pg_index i ON i.indrelid = p.relid
    JOIN pg_class c ON c.oid = i.indexrelid
    JOIN pg_am m ON m.oid = c.relam AND m.amname = 'brin'
    JOIN pg_class r ON r.oid = p.relid
    WHERE p.isleaf
      AND (
        r.relname LIKE '%\_default'
        OR right(r.relname, 8) >= to_char((t AT TIME ZONE 'UTC') - interval '1 day', 'YYYYMMDD'))
    ORDER BY 2
  LOOP
    number := coalesce((done->>found.name)::int, 0);
    BEGIN
      WHILE number < found.ranges AND clock_timestamp() < began + interval '20 milliseconds' LOOP
        PERFORM brin_summarize_range(found.index, number::bigint * pages_per_range);
        number := number + 1;
      END LOOP;
    EXCEPTION WHEN lock_not_available THEN NULL;
    END;
    kept := kept || jsonb_build_object(found.name, number);
  END LOOP;
  UPDATE chore_marks m SET summarized = kept WHERE m.chore = 'summaries';
  RETURN _figures_pause();
END $$;

-- Returns a row if the index is not valid: true if it is being built, false if its build was
-- killed.
SELECT EXISTS (SELECT FROM pg_stat_progress_create_index b WHERE b.index_relid = c.oid)
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_index i ON i.indexrelid = c.oid
WHERE n.nspname = %s
  AND c.relname = %s
  AND NOT i.indisvalid;

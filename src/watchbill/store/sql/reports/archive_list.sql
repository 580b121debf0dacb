-- Lists days of history that were written to files, the newest first.
CREATE OR REPLACE FUNCTION archive_list(name text DEFAULT NULL, max int DEFAULT 10000)
RETURNS TABLE (
  partition text, place text, row_count bigint, bytes bigint, sha256 bytea, at timestamptz
)
LANGUAGE sql STABLE AS $$
  SELECT a.partition, a.place, a.rows, a.bytes, a.sha256, a.at
  FROM archives a
  WHERE _acts_for_all_tenants()
    AND (archive_list.name IS NULL OR a.partition = archive_list.name)
  ORDER BY a.partition DESC, a.at DESC
  LIMIT archive_list.max
$$;

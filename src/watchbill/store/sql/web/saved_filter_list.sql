-- Lists the filters of a page, or of all, that belong to this tenant (NULL: to those who see all).
CREATE OR REPLACE FUNCTION saved_filter_list(page text DEFAULT NULL, tenant text DEFAULT NULL)
RETURNS TABLE (
  id bigint,
  page text,
  name text,
  query text,
  created_by text,
  created_at timestamptz
)
LANGUAGE sql STABLE AS $$
  SELECT f.id, f.page, f.name, f.query, f.created_by, f.created_at
  FROM saved_filters f
  WHERE f.tenant IS NOT DISTINCT FROM saved_filter_list.tenant
    AND (saved_filter_list.page IS NULL OR f.page = saved_filter_list.page)
  ORDER BY f.page, f.name
$$;

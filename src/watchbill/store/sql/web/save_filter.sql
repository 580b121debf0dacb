-- Keeps a filter of a page under a name, for those who see this tenant (NULL: who see all tenants).
-- Replaces the one that has the name.
CREATE OR REPLACE FUNCTION save_filter(
  page text,
  name text,
  query text,
  tenant text DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
  stored bigint;
BEGIN
  IF coalesce(length(page), 0) NOT BETWEEN 1 AND 50
    OR coalesce(length(name), 0) NOT BETWEEN 1 AND 100
    OR coalesce(length(query), 9999) > 4000 THEN
    RAISE EXCEPTION 'the filter is invalid'
      USING ERRCODE = 'WB003',
        HINT = 'page has 1 to 50 characters, name 1 to 100, query up to 4000';
  END IF;
  INSERT INTO saved_filters AS f (tenant, page, name, query, created_by, created_at)
  VALUES (
    save_filter.tenant, save_filter.page, save_filter.name, save_filter.query, _actor(),
    _clock(save_filter.now))
  ON CONFLICT (tenant, page, name) DO UPDATE
  SET query = EXCLUDED.query,
    created_by = EXCLUDED.created_by,
    created_at = EXCLUDED.created_at
  RETURNING f.id INTO stored;
  RETURN stored;
END $$;

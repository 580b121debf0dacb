-- Deletes a filter. Returns whether there was one.
CREATE OR REPLACE FUNCTION remove_filter(id bigint, tenant text DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  DELETE FROM saved_filters f WHERE f.id = id AND f.tenant IS NOT DISTINCT FROM tenant;
  RETURN FOUND;
END $$;

-- Deletes a mark. Returns whether there was one.
CREATE OR REPLACE FUNCTION remove_chart_mark(id bigint)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  PERFORM _check_shared_change('remove_chart_mark');
  DELETE FROM chart_marks m WHERE m.id = id;
  RETURN FOUND;
END $$;

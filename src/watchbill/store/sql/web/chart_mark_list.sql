-- Lists at most 200 marks of a time, the newest first.
CREATE OR REPLACE FUNCTION chart_mark_list(
  since timestamptz DEFAULT NULL,
  until timestamptz DEFAULT NULL
)
RETURNS TABLE (id bigint, at timestamptz, text text, created_by text)
LANGUAGE sql STABLE AS $$
  SELECT m.id, m.at, m.text, m.created_by
  FROM chart_marks m
  WHERE m.at >= coalesce(chart_mark_list.since, '-infinity')
    AND m.at < coalesce(chart_mark_list.until, 'infinity')
  ORDER BY m.at DESC, m.id DESC
  LIMIT 200
$$;

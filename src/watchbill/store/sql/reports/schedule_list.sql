-- Lists schedules by name, starting after the name `after`.
CREATE OR REPLACE FUNCTION schedule_list(
  tenant text DEFAULT NULL,
  category text DEFAULT NULL,
  tag text DEFAULT NULL,
  status text DEFAULT NULL,
  after text DEFAULT NULL,
  max int DEFAULT 50
)
RETURNS SETOF schedule
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
BEGIN
  -- Selects the ids first, so that the other columns of the view are computed only for the
  -- schedules of this page.
  RETURN QUERY
  SELECT v.*
  FROM (
    SELECT s.id
    FROM schedules s
    WHERE (tenant IS NULL OR s.tenant = tenant)
      AND (category IS NULL OR s.category = category)
      AND (tag IS NULL OR tag = ANY (s.tags))
      AND (after IS NULL OR s.name > after)
    ORDER BY s.name, s.tenant
    LIMIT CASE WHEN status IS NULL THEN max END) page
  CROSS JOIN LATERAL (SELECT * FROM schedule x WHERE x.id = page.id OFFSET 0) v
  WHERE status IS NULL
    OR v.status = status
  LIMIT max;
END $$;

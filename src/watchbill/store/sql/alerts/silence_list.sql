-- Lists the silences that are in force, and with `ended` also those of the last week.
CREATE OR REPLACE FUNCTION silence_list(ended boolean DEFAULT false, now timestamptz DEFAULT NULL)
RETURNS TABLE (
  id bigint,
  matcher jsonb,
  until timestamptz,
  reason text,
  created_by text,
  created_at timestamptz
)
LANGUAGE sql STABLE AS $$
  SELECT s.id, s.matcher, s.until, s.reason, s.created_by, s.created_at
  FROM silences s
  WHERE (silence_list.ended OR s.until > _clock(silence_list.now))
    AND _acts_for_all_tenants()
  ORDER BY s.until DESC, s.id DESC
  LIMIT 1000
$$;

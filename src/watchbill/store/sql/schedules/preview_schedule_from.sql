-- Lists the next `n` slots of a definition. Checks the definition as add_schedule() does, but
-- stores nothing except its compiled pattern.
CREATE OR REPLACE FUNCTION preview_schedule_from(
  definition jsonb,
  n int DEFAULT 10,
  now timestamptz DEFAULT NULL
)
RETURNS SETOF timestamptz
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  s schedules := _build_schedule(definition, _clock(now));
BEGIN
  s.name := coalesce(s.name, 'preview');
  PERFORM _refuse_schedule(s.name, _find_schedule_error(s));
  IF s.pattern IS NOT NULL THEN
    s.pattern_id := _compile_pattern(s.pattern, s.tz, s.dst, coalesce(s.start, s.created_at));
  END IF;
  RETURN QUERY
  SELECT * FROM _preview_slots(s, n, s.created_at, coalesce(s.max_runs, 2147483647));
END $$;

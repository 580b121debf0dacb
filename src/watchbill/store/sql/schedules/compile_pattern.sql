-- Returns the id of a compiled pattern. Compiles and stores the pattern if it is new.
CREATE OR REPLACE FUNCTION _compile_pattern(pattern text, tz text, dst text, anchor timestamptz)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  -- Only @every depends on the anchor. Schedules with any other pattern share one compiled row.
  grid_start timestamptz := CASE
    WHEN strpos(lower(pattern), '@every') > 0 THEN anchor
    ELSE '1970-01-01 00:00:00+00'
  END;
  parsed cron;
  known_id int;
BEGIN
  SELECT min(r.id)
  INTO known_id
  FROM compiled_patterns r
  WHERE r.pattern = pattern
    AND r.tz = tz
    AND r.dst = dst
    AND r.anchor = grid_start;
  IF known_id IS NULL THEN
    parsed := parse_cron(pattern, tz, dst, grid_start);
    INSERT INTO compiled_patterns (pattern, tz, dst, anchor, cron, has_modifier, on_start)
    SELECT
      pattern, tz, dst, grid_start, parsed,
      bool_or(_cron_part_modifier_index(parsed, b) > 0),
      bool_or(_cron_part_is_reboot(parsed, b))
    FROM generate_series(0, _cron_last_part_offset(parsed), 27) b
    RETURNING id INTO known_id;
  END IF;
  RETURN known_id;
END $$;

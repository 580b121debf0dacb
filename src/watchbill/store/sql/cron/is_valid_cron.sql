-- Says whether a pattern and its zone are valid, and the pattern names a day that the calendar has.
-- parse_cron() raises an error with the reason if they are not valid.
CREATE OR REPLACE FUNCTION is_valid_cron(pattern text, tz text DEFAULT 'UTC')
RETURNS boolean
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
  RETURN _cron_names_a_day(parse_cron(pattern, tz));
EXCEPTION WHEN SQLSTATE 'WB010' THEN
  RETURN false;
END $$;

-- Says whether any part of a pattern has an instant; February 30 has none. Asks for wall times,
-- which need no zone, so that a CHECK holds during a restore, before the table of zones is filled.
CREATE OR REPLACE FUNCTION _cron_names_a_day(c cron)
RETURNS boolean
LANGUAGE plpgsql IMMUTABLE STRICT
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN (
    SELECT bool_or(
      _cron_part_is_reboot(c, b)
      OR _cron_part_is_every(c, b)
      OR _find_next_instant(c, b, -62135510400, -1) IS NOT NULL)
    FROM generate_series(0, _cron_last_part_offset(c), 27) b);
END $$;

-- Returns true for a pattern that names a day, and raises an error for any other.
CREATE OR REPLACE FUNCTION _check_cron_names_a_day(pattern text, c cron)
RETURNS boolean
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
  IF NOT _cron_names_a_day(c) THEN
    PERFORM _cron_refuse_pattern(pattern, 0, 'pattern', 'it names no day that the calendar has');
  END IF;
  RETURN true;
END $$;

-- Says whether a pattern and its zone are valid. parse_cron() raises an error with the reason if
-- they are not.
CREATE OR REPLACE FUNCTION is_valid_cron(pattern text, tz text DEFAULT 'UTC')
RETURNS boolean
LANGUAGE plpgsql IMMUTABLE STRICT
SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM parse_cron(pattern, tz);
  RETURN true;
EXCEPTION WHEN SQLSTATE 'WB010' THEN
  RETURN false;
END $$;

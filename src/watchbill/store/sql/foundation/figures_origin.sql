-- Minutes, hours and days are those of UTC, whatever the TimeZone of the session.
CREATE OR REPLACE FUNCTION _figures_origin()
RETURNS timestamptz
LANGUAGE sql IMMUTABLE
RETURN '2000-01-01 00:00:00+00'::timestamptz;

-- Returns how many seconds pass between two looks: fewer while jobs run.
CREATE OR REPLACE FUNCTION _figures_pause()
RETURNS float8
LANGUAGE sql STABLE
AS $$ SELECT CASE WHEN EXISTS (SELECT FROM claims) THEN 10.0 ELSE 30.0 END $$;

-- Minutes, hours and days are those of UTC, whatever the TimeZone of the session.
CREATE OR REPLACE FUNCTION _figures_origin()
RETURNS timestamptz
LANGUAGE sql IMMUTABLE
RETURN '2000-01-01 00:00:00+00'::timestamptz;

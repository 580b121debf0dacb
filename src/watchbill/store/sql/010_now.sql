-- PostgreSQL parses a RETURN body now, so later search_paths do not matter, and inlines it.

-- The time of the database. In a test schema it is ahead by installation.clock_offset.
DO $$
BEGIN
  IF (SELECT test FROM installation) THEN
    CREATE OR REPLACE FUNCTION _clock()
    RETURNS timestamptz
    LANGUAGE sql VOLATILE
    RETURN clock_timestamp() + (SELECT i.clock_offset FROM installation i);
  ELSE
    CREATE OR REPLACE FUNCTION _clock()
    RETURNS timestamptz
    LANGUAGE sql VOLATILE
    RETURN clock_timestamp();
  END IF;
END $$;

-- _clock() for users. Functions call _clock(), because now() in them is pg_catalog.now().
CREATE OR REPLACE FUNCTION now()
RETURNS timestamptz
LANGUAGE sql VOLATILE
RETURN _clock();

-- When a run started that is `age` seconds old at `t`; NULL for NULL. An age over a century, after
-- a jump of the worker's clock, counts as a century.
CREATE OR REPLACE FUNCTION _started_at(t timestamptz, age float8)
RETURNS timestamptz
LANGUAGE sql STABLE
RETURN t - CASE
    WHEN age IS NOT NULL THEN least(greatest(age, 0), 3155760000)
  END * interval '1 second';

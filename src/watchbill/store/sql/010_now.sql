-- The functions here have a RETURN body: PostgreSQL parses it when the function is created, so the
-- search_path of a caller does not matter, and inlines it.

-- _clock() returns the time of the database. In a schema for tests it adds
-- installation.clock_offset, so that a test can move the clock.
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

-- Returns the same time as _clock(), under a name for users. Our own functions call _clock(),
-- because the name now() means pg_catalog.now() in them.
CREATE OR REPLACE FUNCTION now()
RETURNS timestamptz
LANGUAGE sql VOLATILE
RETURN _clock();

-- Returns when a run started that is `age` seconds old at the time `t`; NULL if `age` is NULL. An
-- age of more than a century, which a jump of the worker's clock can cause, counts as a century.
CREATE OR REPLACE FUNCTION _started_at(t timestamptz, age float8)
RETURNS timestamptz
LANGUAGE sql STABLE
RETURN t - CASE
    WHEN age IS NOT NULL THEN least(greatest(age, 0), 3155760000)
  END * interval '1 second';

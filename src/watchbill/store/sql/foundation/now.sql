-- The clocks here have a RETURN body: PostgreSQL parses it when the function is created, so the
-- search_path of a caller does not matter, and inlines it.

-- Returns a time that a caller has given, and raises if that is not the owner of the schema.
CREATE OR REPLACE FUNCTION _check_given_time(t timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF NOT pg_has_role(
    _caller(), (SELECT c.relowner FROM pg_class c WHERE c.oid = 'installation'::regclass), 'USAGE')
  THEN
    RAISE EXCEPTION 'now is invalid here: only the owner of the schema may give a time, not role %',
      quote_literal(_caller())
      USING ERRCODE = 'WB017', HINT = 'leave now out: the time is that of the database';
  END IF;
  RETURN t;
END $$;

-- _clock() returns the time of the database. In a schema for tests it adds
-- installation.clock_offset, so that a test can move the clock.
--
-- _clock(now) returns the time that a caller has given to a function, or, if that is NULL, the time
-- of the database. Outside a schema for tests only the owner may give a time: others could delete
-- what is kept for a month, or end leases, by naming a time of the future. So a function that roles
-- may call passes `now` on to another such function as it got it, and never a time that it has
-- read. Private functions that take `t` trust it.
DO $$
BEGIN
  IF (SELECT test FROM installation) THEN
    CREATE OR REPLACE FUNCTION _clock()
    RETURNS timestamptz
    LANGUAGE sql VOLATILE
    RETURN clock_timestamp() + (SELECT i.clock_offset FROM installation i);
    CREATE OR REPLACE FUNCTION _clock(now timestamptz)
    RETURNS timestamptz
    LANGUAGE sql VOLATILE
    RETURN coalesce(now, _clock());
  ELSE
    CREATE OR REPLACE FUNCTION _clock()
    RETURNS timestamptz
    LANGUAGE sql VOLATILE
    RETURN clock_timestamp();
    CREATE OR REPLACE FUNCTION _clock(now timestamptz)
    RETURNS timestamptz
    LANGUAGE sql VOLATILE
    RETURN CASE WHEN now IS NULL THEN _clock() ELSE _check_given_time(now) END;
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

-- Small functions have their body as RETURN: it is parsed here and now, so no search_path matters later, and the planner puts it in place of the call.

-- The database's clock. In a schema marked test it runs ahead by installation.clock_offset, for every caller and every process.
DO $$
BEGIN
  IF (SELECT test FROM installation) THEN
    CREATE OR REPLACE FUNCTION clock() RETURNS timestamptz LANGUAGE sql VOLATILE
      RETURN clock_timestamp() + (SELECT i.clock_offset FROM installation i);
  ELSE
    CREATE OR REPLACE FUNCTION clock() RETURNS timestamptz LANGUAGE sql VOLATILE
      RETURN clock_timestamp();
  END IF;
END $$;

-- The same for users; our own functions say clock(), because there pg_catalog.now() would come first.
CREATE OR REPLACE FUNCTION now() RETURNS timestamptz LANGUAGE sql VOLATILE RETURN clock();

-- When something of this age, in seconds, began; NULL stays NULL. A worker's clock may jump: what lies ahead began now, and nothing is older than a century,
-- so that every reader can show it.
CREATE OR REPLACE FUNCTION began(t timestamptz, age float8) RETURNS timestamptz LANGUAGE sql STABLE
  RETURN t - CASE WHEN age IS NOT NULL THEN least(greatest(age, 0), 3155760000) END * interval '1 second';

-- The database's clock. In a schema marked test it runs ahead by installation.clock_offset, for every caller and every process.
DO $$
BEGIN
  IF (SELECT test FROM installation) THEN
    CREATE OR REPLACE FUNCTION clock() RETURNS timestamptz LANGUAGE sql VOLATILE SET search_path FROM CURRENT
      AS 'SELECT clock_timestamp() + clock_offset FROM installation';
  ELSE
    CREATE OR REPLACE FUNCTION clock() RETURNS timestamptz LANGUAGE sql VOLATILE SET search_path FROM CURRENT
      AS 'SELECT clock_timestamp()';
  END IF;
END $$;

-- The same for users; our own functions say clock(), because there pg_catalog.now() would come first.
CREATE OR REPLACE FUNCTION now() RETURNS timestamptz LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS 'SELECT clock()';

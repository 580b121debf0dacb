-- Drops functions that an earlier release has made and that are not in the files of this release.
-- Their row of pg_proc has not moved since before_functions.sql. An old function that stayed beside
-- a new one with other arguments would make calls ambiguous. One statement drops all of them,
-- because a function that another one calls cannot be dropped before that one.
DO $$
DECLARE
  gone text;
BEGIN
  SELECT string_agg(was.signature, ', ')
  INTO gone
  FROM schema_functions, unnest(signatures) AS was(signature)
  JOIN pg_proc p ON p.oid = to_regprocedure(was.signature)
  WHERE p.ctid::text = current_setting('watchbill.functions_before')::jsonb ->> p.oid::text;
  IF gone IS NOT NULL THEN EXECUTE 'DROP ROUTINE ' || gone; END IF;
END $$;

DELETE FROM schema_functions;
INSERT INTO schema_functions (checksum, watchbill_version, signatures)
SELECT
  {checksum}, {watchbill_version},
  coalesce(array_agg(p.oid::regprocedure::text ORDER BY 1), ARRAY[]::text[])
FROM pg_proc p
WHERE p.pronamespace = quote_ident(current_schema())::regnamespace
  AND p.ctid::text
    IS DISTINCT FROM current_setting('watchbill.functions_before')::jsonb ->> p.oid::text;

-- Takes the right to execute new functions from PUBLIC, to which PostgreSQL grants it by default.
DO $$
DECLARE
  new_ones text;
BEGIN
  SELECT string_agg(p.oid::regprocedure::text, ', ')
  INTO new_ones
  FROM schema_functions, unnest(signatures) AS own(signature)
  JOIN pg_proc p ON p.oid = to_regprocedure(own.signature)
  WHERE EXISTS (
    SELECT
    FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) granted
    WHERE granted.grantee = 0);
  IF new_ones IS NOT NULL THEN
    EXECUTE 'REVOKE ALL ON ROUTINE ' || new_ones || ' FROM PUBLIC';
  END IF;
END $$;

-- A function that its file no longer makes would live on beside its successor, and calls of the two would be ambiguous.
DO $$
DECLARE
  gone text;
BEGIN
  FOR gone IN
    SELECT was.signature
    FROM schema_functions, unnest(signatures) AS was(signature)
    JOIN pg_proc p ON p.oid = to_regprocedure(was.signature)
    WHERE p.ctid::text = current_setting('watchbill.functions_before')::jsonb ->> p.oid::text
  LOOP
    EXECUTE 'DROP ROUTINE ' || gone;
  END LOOP;
END $$;

DELETE FROM schema_functions;
INSERT INTO schema_functions (checksum, watchbill_version, signatures)
SELECT {checksum}, {watchbill_version}, coalesce(array_agg(p.oid::regprocedure::text ORDER BY 1), ARRAY[]::text[])
FROM pg_proc p
WHERE p.pronamespace = quote_ident(current_schema())::regnamespace
  AND p.ctid::text IS DISTINCT FROM current_setting('watchbill.functions_before')::jsonb ->> p.oid::text;

-- A function that its file no longer makes would live on beside its successor, and calls of the two would be ambiguous.
DO $$
DECLARE
  gone text;
BEGIN
  FOR gone IN
    SELECT was.signature
    FROM schema_functions, unnest(signatures) AS was(signature)
    JOIN pg_proc p ON p.oid = to_regprocedure(was.signature)
    WHERE p.xmin <> pg_current_xact_id()::xid
  LOOP
    EXECUTE 'DROP ROUTINE ' || gone;
  END LOOP;
END $$;

DELETE FROM schema_functions;
INSERT INTO schema_functions (checksum, foliot_version, signatures)
SELECT {checksum}, {foliot_version}, coalesce(array_agg(p.oid::regprocedure::text ORDER BY 1), ARRAY[]::text[])
FROM pg_proc p
WHERE p.pronamespace = quote_ident(current_schema())::regnamespace AND p.xmin = pg_current_xact_id()::xid
  AND p.oid <> ALL (current_setting('foliot.made_before')::oid[]);

-- Stores where each row of pg_proc is. CREATE OR REPLACE writes the row at another place (ctid), so
-- after_functions.sql can tell which functions the files have made.
SELECT set_config('watchbill.functions_before', (
  SELECT coalesce(jsonb_object_agg(p.oid, p.ctid::text), jsonb_build_object())::text
  FROM pg_proc p
  WHERE p.pronamespace = quote_ident(current_schema())::regnamespace), true);

-- Functions that a migration made earlier in this transaction are not those of the function files.
SELECT set_config('foliot.made_before', (
  SELECT coalesce(array_agg(p.oid), ARRAY[]::oid[])::text FROM pg_proc p
  WHERE p.pronamespace = quote_ident(current_schema())::regnamespace AND p.xmin = pg_current_xact_id()::xid), true);

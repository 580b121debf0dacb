-- Where each function is now; a function file that makes one again puts it elsewhere.
SELECT set_config('watchbill.functions_before', (
  SELECT coalesce(jsonb_object_agg(p.oid, p.ctid::text), jsonb_build_object())::text FROM pg_proc p
  WHERE p.pronamespace = quote_ident(current_schema())::regnamespace), true);

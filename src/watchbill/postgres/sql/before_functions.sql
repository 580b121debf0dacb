-- Drops functions whose parameters have other names in the files of this release, because CREATE OR
-- REPLACE cannot rename a parameter. A function that a view calls stays: if the files have it with
-- other types, they make a new one, the view is replaced, and after_functions.sql drops the old
-- one. If only names have changed, a migration has to drop the view.
DO $$
DECLARE
  names jsonb := {parameter_names};
  renamed text;
BEGIN
  SELECT string_agg(p.oid::regprocedure::text, ', ')
  INTO renamed
  FROM schema_functions, unnest(signatures) AS own(signature)
  JOIN pg_proc p ON p.oid = to_regprocedure(own.signature)
  WHERE p.proargnames IS NOT NULL
    AND names ? p.proname
    AND NOT EXISTS (
      SELECT
      FROM jsonb_array_elements(names -> p.proname) f(parameters)
      WHERE f.parameters = to_jsonb(p.proargnames))
    AND NOT EXISTS (
      SELECT
      FROM pg_depend d
      WHERE d.refclassid = 'pg_proc'::regclass
        AND d.refobjid = p.oid
        AND d.classid = 'pg_rewrite'::regclass);
  IF renamed IS NOT NULL THEN EXECUTE 'DROP ROUTINE ' || renamed; END IF;
END $$;

-- Stores where each row of pg_proc is. CREATE OR REPLACE writes the row at another place (ctid), so
-- after_functions.sql can tell which functions the files have made.
SELECT set_config('watchbill.functions_before', (
  SELECT coalesce(jsonb_object_agg(p.oid, p.ctid::text), jsonb_build_object())::text
  FROM pg_proc p
  WHERE p.pronamespace = quote_ident(current_schema())::regnamespace), true);

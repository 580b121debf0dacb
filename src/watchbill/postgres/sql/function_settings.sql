-- Gives the functions that the files have made their search_path and the settings of settings.txt.
-- One ALTER per function, in the transaction of the files, so that no call meets a function without
-- its settings. As in after_functions.sql, the place of a function's row tells whether it is new.
DO $$
DECLARE
  settings jsonb := {settings};
  statement text;
BEGIN
  FOR statement IN
    WITH made AS (
      SELECT p.oid, p.proname, p.prosqlbody
      FROM pg_proc p
      WHERE p.pronamespace = quote_ident(current_schema())::regnamespace
        AND p.prokind = 'f'
        AND p.ctid::text
          IS DISTINCT FROM current_setting('watchbill.functions_before')::jsonb ->> p.oid::text),
    wanted AS (
      SELECT m.oid, 'SET search_path FROM CURRENT' AS clause
      FROM made m
      WHERE m.prosqlbody IS NULL
        AND NOT m.proname LIKE ANY (
          ARRAY(SELECT jsonb_array_elements_text(settings -> 'unpinned')))
      UNION ALL
      SELECT m.oid, format('SET %I = %L', s.key, s.value)
      FROM made m
      CROSS JOIN LATERAL jsonb_each_text(settings -> 'functions' -> m.proname) s)
    SELECT format('ALTER FUNCTION %s %s', w.oid::regprocedure, string_agg(w.clause, ' '))
    FROM wanted w
    GROUP BY w.oid
  LOOP
    EXECUTE statement;
  END LOOP;
END $$;

-- Creates a composite type. If the installed one has other fields, drops it first, with the types
-- that contain it and the functions of this schema that take or return one of these: the files that
-- follow make them again. Fails if anything outside this schema uses such a function.
CREATE OR REPLACE FUNCTION _create_type(name text, fields text)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  installed regtype := to_regtype(quote_ident(name));
  types regtype[];
  routines text;
BEGIN
  EXECUTE format(E'CREATE TYPE _new_type AS (%s\n)', fields);
  IF _list_fields(to_regtype('_new_type')) = _list_fields(installed) THEN
    DROP TYPE _new_type;
    RETURN;
  END IF;
  IF installed IS NOT NULL THEN
    WITH RECURSIVE used_in AS (
      SELECT installed AS type
      UNION
      SELECT c.reltype
      FROM used_in u
      JOIN pg_type t ON u.type IN (t.oid, t.typelem)
      JOIN pg_attribute a ON a.atttypid = t.oid
      JOIN pg_class c ON c.oid = a.attrelid
      WHERE c.relkind = 'c')
    SELECT array_agg(u.type)
    INTO types
    FROM used_in u;
    SELECT string_agg(DISTINCT p.oid::regprocedure::text, ', ')
    INTO routines
    FROM pg_type t
    JOIN pg_depend d ON d.refclassid = 'pg_type'::regclass AND d.refobjid = t.oid
    JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
    WHERE types && ARRAY[t.oid, t.typelem]::regtype[]
      AND p.pronamespace = quote_ident(current_schema())::regnamespace;
    IF routines IS NOT NULL THEN EXECUTE 'DROP ROUTINE ' || routines; END IF;
    EXECUTE 'DROP TYPE ' || array_to_string(types, ', ');
  END IF;
  EXECUTE format('ALTER TYPE _new_type RENAME TO %I', name);
END $$;

-- The fields of a composite type, in order; NULL if there is no such type.
CREATE OR REPLACE FUNCTION _list_fields(type regtype)
RETURNS text
LANGUAGE sql STABLE AS $$
SELECT string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' ORDER BY a.attnum)
FROM pg_type t
JOIN pg_attribute a ON a.attrelid = t.typrelid
WHERE t.oid = type
  AND NOT a.attisdropped
$$;

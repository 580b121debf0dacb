-- Applies what rights.txt states: which functions run with the rights of the owner, and what the
-- roles of `watchbill db roles create` may do. Takes away every other right of these roles in the
-- schema. If there are no such roles, it only sets whose rights functions have. The migrator and
-- `watchbill db roles` call this.
CREATE OR REPLACE FUNCTION _apply_rights(rights jsonb)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  home regnamespace := (
    SELECT c.relnamespace FROM pg_class c WHERE c.oid = 'jobs'::regclass);
  prefix text := (SELECT i.role_prefix FROM installation i);
  statement text;
BEGIN
  FOR statement IN
    SELECT format(
      'ALTER ROUTINE %s SECURITY %s',
      p.oid::regprocedure, CASE WHEN f.definer THEN 'DEFINER' ELSE 'INVOKER' END)
    FROM jsonb_to_recordset(rights->'functions') f(name text, definer boolean)
    JOIN pg_proc p ON p.pronamespace = home AND p.proname = f.name
    WHERE p.prosecdef <> f.definer
  LOOP
    EXECUTE statement;
  END LOOP;
  FOR statement IN
    SELECT s.line
    FROM unnest('{producer,worker,operator,reader}'::text[]) k(kind)
    JOIN pg_roles r ON r.rolname = prefix || '_' || k.kind
    CROSS JOIN LATERAL (
      SELECT x FROM _list_revocations(home, r.oid) x
      UNION ALL
      SELECT format('GRANT USAGE ON SCHEMA %s TO %I', home, r.rolname)
      UNION ALL
      SELECT format(
        'GRANT EXECUTE ON ROUTINE %s TO %I', string_agg(p.oid::regprocedure::text, ', '), r.rolname)
      FROM jsonb_to_recordset(rights->'functions') f(name text, roles jsonb)
      JOIN pg_proc p ON p.pronamespace = home AND p.proname = f.name
      WHERE f.roles ? k.kind
      UNION ALL
      SELECT format(
        'GRANT %s ON %s %s TO %I',
        g.privileges, CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END,
        c.oid::regclass, r.rolname)
      FROM jsonb_to_recordset(rights->'relations') g(name text, privileges text, roles jsonb)
      JOIN pg_class c ON c.relnamespace = home AND c.relname = g.name
      WHERE g.roles ? k.kind) s(line)
  LOOP
    EXECUTE statement;
  END LOOP;
  PERFORM _mark_bound_roles();
  PERFORM _protect_new_tables();
END $$;

-- Returns the statements that take all rights in the schema from a role.
CREATE OR REPLACE FUNCTION _list_revocations(home regnamespace, grantee oid)
RETURNS SETOF text
LANGUAGE sql STABLE AS $$
  SELECT DISTINCT format(
    'REVOKE ALL ON %s %s FROM %s',
    CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::regclass, grantee::regrole)
  FROM pg_class c
  CROSS JOIN LATERAL aclexplode(c.relacl) a
  WHERE c.relnamespace = home
    AND a.grantee = _list_revocations.grantee
  UNION ALL
  SELECT DISTINCT format('REVOKE ALL ON ROUTINE %s FROM %s', p.oid::regprocedure, grantee::regrole)
  FROM pg_proc p
  CROSS JOIN LATERAL aclexplode(p.proacl) a
  WHERE p.pronamespace = home
    AND a.grantee = _list_revocations.grantee
$$;

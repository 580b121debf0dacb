-- These statements are about the roles of an installation.

-- name: roles
SELECT
  k.kind, g.rolname,
  ARRAY(
    SELECT m.rolname::text
    FROM pg_auth_members a
    JOIN pg_roles m ON m.oid = a.member
    WHERE a.roleid = g.oid
    ORDER BY m.rolname)
FROM {schema}.installation i
CROSS JOIN unnest('{{owner,producer,worker,operator,reader}}'::text[])
  WITH ORDINALITY k(kind, place)
JOIN pg_roles g ON g.rolname = i.role_prefix || '_' || k.kind
ORDER BY k.place

-- name: ownership_statements
-- Returns the statements that make a role the owner of these schemas and of everything in them.
WITH given AS (
  SELECT n.oid, n.nspname, %s::text[] AS names, quote_ident(%s) AS owner FROM pg_namespace n)
SELECT format('ALTER SCHEMA %%I OWNER TO %%s', g.nspname, g.owner)
FROM given g
WHERE g.nspname = ANY (g.names)
UNION ALL
SELECT format(
  'ALTER %%s %%s OWNER TO %%s',
  CASE c.relkind WHEN 'S' THEN 'SEQUENCE' WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END,
  c.oid::regclass, g.owner)
FROM given g
JOIN pg_class c ON c.relnamespace = g.oid
WHERE g.nspname = ANY (g.names)
  AND c.relkind IN ('r', 'p', 'v', 'S')
  AND NOT EXISTS (
    SELECT
    FROM pg_depend d
    WHERE d.classid = 'pg_class'::regclass
      AND d.objid = c.oid
      AND d.refclassid = 'pg_class'::regclass
      AND d.deptype IN ('a', 'i')
      AND c.relkind = 'S')
UNION ALL
SELECT format('ALTER ROUTINE %%s OWNER TO %%s', p.oid::regprocedure, g.owner)
FROM given g
JOIN pg_proc p ON p.pronamespace = g.oid
WHERE g.nspname = ANY (g.names)
UNION ALL
SELECT format(
  'ALTER %%s %%s OWNER TO %%s',
  CASE t.typtype WHEN 'd' THEN 'DOMAIN' ELSE 'TYPE' END, t.oid::regtype, g.owner)
FROM given g
JOIN pg_type t ON t.typnamespace = g.oid
LEFT JOIN pg_class c ON c.oid = t.typrelid
WHERE g.nspname = ANY (g.names)
  AND (t.typtype = 'd' OR t.typtype = 'c' AND c.relkind = 'c')

-- Whose rows a caller sees under row security. Two functions that do nothing stand for two facts
-- about a role, because the server answers has_function_privilege() from its caches: a table that
-- says the same would have to be read by every statement.

-- EXECUTE on this function is the right to see the rows of all tenants.
CREATE OR REPLACE FUNCTION _may_see_all_tenants()
RETURNS void
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$ $$;

-- EXECUTE on this function marks the roles in the table tenant_roles, whose trigger grants it.
-- Owners and superusers have it too: the mark only says that the table must be read.
CREATE OR REPLACE FUNCTION _is_bound()
RETURNS void
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$ $$;

-- A binding as it is written into _is_binding(): the number of the role, because its name may
-- become another role's; its name, because numbers differ on the server to which a dump is
-- restored; `acting`, the role that the session has switched to; and the tenant. A hash, because
-- every role can read the bodies of functions. Inlined.
CREATE OR REPLACE FUNCTION _hash_binding(role oid, name name, acting text, tenant text)
RETURNS text
LANGUAGE sql STABLE
RETURN md5(concat_ws(E'\x1f', role, name, acting, tenant));

-- Writes the function _is_binding(), whose body is a constant that PostgreSQL inlines: so the usual
-- statement of a bound role reads no table. With very many bindings the plans of all sessions would
-- become large, so then _find_scope() reads the table.
CREATE OR REPLACE FUNCTION _write_bindings()
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  most_bindings int := 1000;
  hashes jsonb;
BEGIN
  SELECT jsonb_object_agg(_hash_binding(r.oid, r.rolname, 'none', b.tenant), true)
  INTO hashes
  FROM tenant_roles b
  JOIN pg_roles r ON r.oid = b.role
  HAVING count(*) <= most_bindings;
  EXECUTE format(
    'CREATE OR REPLACE FUNCTION _is_binding(hash text)
    RETURNS boolean
    LANGUAGE sql STABLE
    RETURN %s',
    CASE WHEN hashes IS NULL THEN 'false' ELSE format('%L::jsonb ? hash', hashes) END);
END $$;

DO $$
BEGIN
  PERFORM _write_bindings();
END $$;

-- Finds what _caller_scope() returns, for a session that has the mark or has switched to another
-- role, unless it acts for a tenant to which its role is bound. Both that role and the one that
-- logged in count: a bound role cannot free itself with SET ROLE.
CREATE OR REPLACE FUNCTION _find_scope()
RETURNS text
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  wanted text := nullif(current_setting('watchbill.tenant', true), '');
  login oid := to_regrole(quote_ident(session_user));
  acting oid := to_regrole(quote_ident(_caller()));
  bound record;
BEGIN
  -- The usual case first, by one look at the index.
  IF login = acting
    AND EXISTS (SELECT FROM tenant_roles b WHERE b.role = login AND b.tenant = wanted) THEN
    RETURN wanted;
  END IF;
  SELECT
    count(DISTINCT b.role) AS roles,
    count(*) FILTER (WHERE b.tenant = wanted) AS matches,
    min(b.tenant) AS first,
    max(b.tenant) AS last
  INTO bound
  FROM tenant_roles b
  WHERE b.role IN (login, acting);
  RETURN CASE
      WHEN bound.roles > 0 THEN
        CASE
          WHEN bound.matches = bound.roles THEN wanted
          -- It names none, and there is only one.
          WHEN wanted IS NULL AND bound.first = bound.last THEN bound.first
        END
      WHEN has_function_privilege(acting, '_may_see_all_tenants()', 'EXECUTE') THEN ''
      ELSE wanted
    END;
END $$;

-- The tenant whose rows the caller sees. Empty: it sees the rows of all tenants. NULL: of none. The
-- policies of row security ask it once per statement. Inlined: a call would cost an enqueue a tenth
-- of its time. Every role may ask it, and learns only what it may do itself.
CREATE OR REPLACE FUNCTION _caller_scope()
RETURNS text
LANGUAGE sql STABLE
RETURN CASE
    WHEN has_function_privilege(session_user, '_is_bound()'::regprocedure, 'EXECUTE')
      OR current_setting('role') <> 'none'
      THEN CASE
        WHEN _is_binding(_hash_binding(
          to_regrole(quote_ident(session_user)), session_user, current_setting('role'),
          current_setting('watchbill.tenant', true)))
          THEN current_setting('watchbill.tenant')
        ELSE _find_scope()
      END
    WHEN has_function_privilege(session_user, '_may_see_all_tenants()'::regprocedure, 'EXECUTE')
      THEN ''
    ELSE nullif(current_setting('watchbill.tenant', true), '')
  END COLLATE "C";

-- The same as a view of one row.
CREATE OR REPLACE VIEW caller_scope AS SELECT _caller_scope() AS tenant;

-- Gives exactly the roles in tenant_roles the mark that they are bound, and writes their bindings
-- where the policies find them.
CREATE OR REPLACE FUNCTION _mark_bound_roles()
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  statement text;
BEGIN
  FOR statement IN
    WITH marked AS (
        SELECT a.grantee
        FROM pg_proc p
        CROSS JOIN LATERAL aclexplode(p.proacl) a
        WHERE p.oid = '_is_bound()'::regprocedure
          AND a.grantee <> p.proowner),
      bound AS (
        SELECT b.role
        FROM tenant_roles b
        JOIN pg_roles r ON r.oid = b.role)
    SELECT format('GRANT EXECUTE ON FUNCTION _is_bound() TO %s', x.role::regrole)
    FROM (SELECT role FROM bound EXCEPT SELECT grantee FROM marked) x
    UNION ALL
    SELECT format('REVOKE EXECUTE ON FUNCTION _is_bound() FROM %s', x.grantee::regrole)
    FROM (SELECT grantee FROM marked WHERE grantee <> 0 EXCEPT SELECT role FROM bound) x
  LOOP
    EXECUTE statement;
  END LOOP;
  PERFORM _write_bindings();
END $$;

CREATE OR REPLACE FUNCTION _mark_changed_roles()
RETURNS trigger
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM _mark_bound_roles();
  RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER mark_bound_roles
AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON tenant_roles
FOR EACH STATEMENT EXECUTE FUNCTION _mark_changed_roles();

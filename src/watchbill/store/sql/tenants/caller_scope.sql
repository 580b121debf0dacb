-- Finds out whose rows a caller sees under row security. Two facts about a role are stored as the
-- right to execute two functions that do nothing: the server answers has_function_privilege() from
-- its caches, while a table with these facts would have to be read by every statement.

-- The right to execute this function is the right to see the rows of all tenants.
CREATE OR REPLACE FUNCTION _may_see_all_tenants()
RETURNS void
LANGUAGE sql STABLE
AS $$ $$;

-- The right to execute this function marks a role that the table tenant_roles binds to tenants; a
-- trigger of that table grants it. Owners and superusers can execute it too, so the mark only means
-- that tenant_roles must be read.
CREATE OR REPLACE FUNCTION _is_bound_to_tenants()
RETURNS void
LANGUAGE sql STABLE
AS $$ $$;

-- Hashes the binding of a role to a tenant, for the body of _is_role_binding(). Contains the
-- number of the role, because another role may get its name; its name, because numbers differ on a
-- server to which a dump is restored; `acting`, the role that the session has switched to; and the
-- tenant. It is a hash, because every role can read the bodies of functions. PostgreSQL inlines
-- this function.
CREATE OR REPLACE FUNCTION _hash_role_binding(role oid, name name, acting text, tenant text)
RETURNS text
LANGUAGE sql STABLE
RETURN md5(concat_ws(E'\x1f', role, name, acting, tenant));

-- Writes the function _is_role_binding(), whose body is a constant with all bindings that
-- PostgreSQL inlines: so the usual statement of a bound role reads no table. More than 1,000
-- bindings would make the plans of all sessions large. Then the body is `false`, and
-- _read_visible_tenant() reads the table. Also writes _has_bound_roles(), a constant too, so that
-- no claim asks who is bound where no role is.
CREATE OR REPLACE FUNCTION _write_role_bindings()
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  most_bindings int := 1000;
  hashes jsonb;
BEGIN
  SELECT jsonb_object_agg(_hash_role_binding(r.oid, r.rolname, 'none', b.tenant), true)
  INTO hashes
  FROM tenant_roles b
  JOIN pg_roles r ON r.oid = b.role
  HAVING count(*) <= most_bindings;
  EXECUTE format(
    'CREATE OR REPLACE FUNCTION _is_role_binding(hash text)
    RETURNS boolean
    LANGUAGE sql STABLE
    RETURN %s',
    CASE WHEN hashes IS NULL THEN 'false' ELSE format('%L::jsonb ? hash', hashes) END);
  EXECUTE format(
    'CREATE OR REPLACE FUNCTION _has_bound_roles()
    RETURNS boolean
    LANGUAGE sql STABLE
    RETURN %s',
    CASE WHEN EXISTS (SELECT FROM tenant_roles) THEN 'true' ELSE 'false' END);
END $$;

DO $$
BEGIN
  PERFORM _write_role_bindings();
END $$;

-- Reads tenant_roles to find what _find_visible_tenant() returns, for a session that may be bound
-- or has switched to another role, unless _is_role_binding() has answered. Both the role that
-- logged in and the role it has switched to count, so a bound role cannot free itself with SET
-- ROLE.
CREATE OR REPLACE FUNCTION _read_visible_tenant()
RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
  wanted text := nullif(current_setting('watchbill.tenant', true), '');
  login oid := to_regrole(quote_ident(session_user));
  acting oid := to_regrole(quote_ident(_caller()));
  bound record;
BEGIN
  -- Tries the usual case first, with one read of the index.
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
          -- The session names no tenant, and its roles are bound to only one tenant.
          WHEN wanted IS NULL AND bound.first = bound.last THEN bound.first
        END
      WHEN has_function_privilege(acting, '_may_see_all_tenants()', 'EXECUTE') THEN ''
      ELSE wanted
    END;
END $$;

-- Returns the tenant whose rows the caller sees; an empty text if it sees the rows of all tenants,
-- and NULL if it sees no rows. The policies of row security call this once per statement.
-- PostgreSQL inlines it: a call would cost an enqueue a tenth of its time. Every role may call it,
-- and learns only what it may see itself.
CREATE OR REPLACE FUNCTION _find_visible_tenant()
RETURNS text
LANGUAGE sql STABLE
RETURN CASE
    WHEN has_function_privilege(session_user, '_is_bound_to_tenants()'::regprocedure, 'EXECUTE')
      OR current_setting('role') <> 'none'
      THEN CASE
        WHEN _is_role_binding(_hash_role_binding(
          to_regrole(quote_ident(session_user)), session_user, current_setting('role'),
          current_setting('watchbill.tenant', true)))
          THEN current_setting('watchbill.tenant')
        ELSE _read_visible_tenant()
      END
    WHEN has_function_privilege(session_user, '_may_see_all_tenants()'::regprocedure, 'EXECUTE')
      THEN ''
    ELSE nullif(current_setting('watchbill.tenant', true), '')
  END COLLATE "C";

-- Shows the result of _find_visible_tenant() as a view of one row.
CREATE OR REPLACE VIEW caller_scope AS SELECT _find_visible_tenant() AS tenant;

-- Grants the mark _is_bound_to_tenants() to exactly the roles in tenant_roles, and writes their
-- bindings into _is_role_binding().
CREATE OR REPLACE FUNCTION _mark_bound_roles()
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  statement text;
BEGIN
  FOR statement IN
    WITH marked AS (
        SELECT a.grantee
        FROM pg_proc p
        CROSS JOIN LATERAL aclexplode(p.proacl) a
        WHERE p.oid = '_is_bound_to_tenants()'::regprocedure
          AND a.grantee <> p.proowner),
      bound AS (
        SELECT b.role
        FROM tenant_roles b
        JOIN pg_roles r ON r.oid = b.role)
    SELECT format('GRANT EXECUTE ON FUNCTION _is_bound_to_tenants() TO %s', x.role::regrole)
    FROM (SELECT role FROM bound EXCEPT SELECT grantee FROM marked) x
    UNION ALL
    SELECT format('REVOKE EXECUTE ON FUNCTION _is_bound_to_tenants() FROM %s', x.grantee::regrole)
    FROM (SELECT grantee FROM marked WHERE grantee <> 0 EXCEPT SELECT role FROM bound) x
  LOOP
    EXECUTE statement;
  END LOOP;
  PERFORM _write_role_bindings();
END $$;

CREATE OR REPLACE FUNCTION _mark_changed_roles()
RETURNS trigger
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM _mark_bound_roles();
  RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER mark_bound_roles
AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON tenant_roles
FOR EACH STATEMENT EXECUTE FUNCTION _mark_changed_roles();

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

-- Finds what caller_scope returns, for a session that has the mark or has switched to another role.
-- Both that role and the one that logged in count: a bound role cannot free itself with SET ROLE.
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
  -- The usual case first: it needs only one look into the index.
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
          -- The caller names no tenant, and is bound to one only.
          WHEN wanted IS NULL AND bound.first = bound.last THEN bound.first
        END
      WHEN has_function_privilege(acting, '_may_see_all_tenants()', 'EXECUTE') THEN ''
      ELSE wanted
    END;
END $$;

-- One row: the tenant whose rows the caller sees. Empty: it sees the rows of all tenants. NULL: of
-- none. The policies of row security read it once per statement. It is a short view, so that it
-- becomes a part of that statement's plan: a function would cost an enqueue a tenth of its time.
-- Every role may read it, and learns only what it may do itself.
CREATE OR REPLACE VIEW caller_scope AS
SELECT CASE
    WHEN has_function_privilege(session_user, '_is_bound()'::regprocedure, 'EXECUTE')
      OR current_setting('role') <> 'none'
      THEN _find_scope()
    WHEN has_function_privilege(session_user, '_may_see_all_tenants()'::regprocedure, 'EXECUTE')
      THEN ''
    ELSE nullif(current_setting('watchbill.tenant', true), '')
  END COLLATE "C" AS tenant;

-- Gives exactly the roles in tenant_roles the mark that they are bound.
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

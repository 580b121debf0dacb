-- after: sees_all_tenants
-- Returns the tenant for which the caller acts, from the setting watchbill.tenant; NULL if it acts
-- for no tenant. A role that is bound to tenants can act only for these. If it is bound to one
-- tenant, the setting may be empty.
CREATE OR REPLACE FUNCTION current_tenant()
RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT CASE s.tenant
      WHEN '' THEN nullif(current_setting('watchbill.tenant', true), '')
      ELSE s.tenant
    END
  FROM caller_scope s
$$;

-- Finds what _acting_tenant() returns. Raises if the session may not act for the tenant `wanted`,
-- or if its role is bound to tenants and the session names none of them.
CREATE OR REPLACE FUNCTION _read_acting_tenant(wanted text)
RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
  acting text := current_tenant();
BEGIN
  IF acting IS NULL AND NOT sees_all_tenants() OR wanted <> acting THEN
    PERFORM _refuse_tenant(coalesce(wanted, current_setting('watchbill.tenant', true)));
  END IF;
  RETURN coalesce(wanted, acting);
END $$;

-- Says whether the caller may be bound to a tenant, so that this must be read. PostgreSQL inlines
-- this function: where no role is bound, it is a constant.
CREATE OR REPLACE FUNCTION _may_be_bound()
RETURNS boolean
LANGUAGE sql STABLE
RETURN _has_bound_roles() AND (
    current_setting('role') <> 'none'
    OR has_function_privilege(session_user, '_is_bound_to_tenants()'::regprocedure, 'EXECUTE'));

-- Returns the tenant for which the caller claims and ticks: `wanted`, or the tenant to which its
-- role is bound, or the one that the setting watchbill.tenant names; NULL if it does so for all
-- tenants. PostgreSQL inlines this function, so a worker for all tenants reads and calls nothing.
CREATE OR REPLACE FUNCTION _acting_tenant(wanted text DEFAULT NULL)
RETURNS text
LANGUAGE sql STABLE
RETURN CASE
    WHEN wanted IS NOT NULL
      OR coalesce(current_setting('watchbill.tenant', true), '') <> ''
      OR _may_be_bound()
      THEN _read_acting_tenant(wanted)
  END;

-- Raises the error for a row of a tenant that the caller may not write. The policies of row
-- security call this last, after all other conditions were false.
CREATE OR REPLACE FUNCTION _refuse_tenant(tenant text)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  RAISE EXCEPTION 'tenant % is invalid here: %', quote_nullable(tenant), _describe_caller()
    USING ERRCODE = 'WB013',
      HINT = 'set it for the transaction: SELECT set_config(''watchbill.tenant'', ''NAME'', true)';
END $$;

-- Says whether row security is on.
CREATE OR REPLACE FUNCTION _has_row_security()
RETURNS boolean
LANGUAGE sql STABLE
AS $$ SELECT c.relrowsecurity FROM pg_class c WHERE c.oid = 'jobs'::regclass $$;

-- Says whether the caller may see and change what all tenants share. While row security is off
-- every caller may; while it is on, only callers that see all tenants.
CREATE OR REPLACE FUNCTION _acts_for_all_tenants()
RETURNS boolean
LANGUAGE sql STABLE
AS $$ SELECT NOT _has_row_security() OR sees_all_tenants() $$;

-- Raises unless the caller may change what all tenants share. An operator that is bound to a tenant
-- may not.
CREATE OR REPLACE FUNCTION _check_shared_change(verb text)
RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF NOT _acts_for_all_tenants() THEN
    RAISE EXCEPTION '% is for all tenants: %', verb, _describe_caller()
      USING ERRCODE = 'WB013', HINT = 'this needs an operator that is not bound to a tenant';
  END IF;
END $$;

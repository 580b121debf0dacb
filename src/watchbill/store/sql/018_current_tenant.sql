-- The tenant for which the caller acts: the setting watchbill.tenant. A bound role can only act for
-- its own tenants; if it has one only, the setting may be empty. NULL: for no tenant.
CREATE OR REPLACE FUNCTION current_tenant()
RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT CASE s.tenant
      WHEN '' THEN nullif(current_setting('watchbill.tenant', true), '')
      ELSE s.tenant
    END
  FROM caller_scope s
$$;

-- Raises the error of a row that the policies refuse. They call it after all other conditions.
CREATE OR REPLACE FUNCTION _refuse_tenant(tenant text)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  RAISE EXCEPTION 'tenant % is invalid here: this session acts for %',
    quote_nullable(tenant), coalesce('tenant ' || quote_literal(current_tenant()), 'no tenant')
    USING ERRCODE = 'WB013',
      HINT = 'set it for the transaction: SELECT set_config(''watchbill.tenant'', ''NAME'', true)';
END $$;

-- Whether row security is on.
CREATE OR REPLACE FUNCTION _has_row_security()
RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$ SELECT c.relrowsecurity FROM pg_class c WHERE c.oid = 'jobs'::regclass $$;

-- Whether the caller may see and change what tenants share: everybody while row security is off,
-- and then those who see all tenants.
CREATE OR REPLACE FUNCTION _acts_for_all_tenants()
RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$ SELECT NOT _has_row_security() OR sees_all_tenants() $$;

-- Raises unless the caller may change what tenants share: an operator that is bound to a tenant may
-- not.
CREATE OR REPLACE FUNCTION _check_shared_change(verb text)
RETURNS void
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  IF NOT _acts_for_all_tenants() THEN
    RAISE EXCEPTION '% is for all tenants: this session acts for %',
      verb, coalesce('tenant ' || quote_literal(current_tenant()), 'no tenant')
      USING ERRCODE = 'WB013', HINT = 'use a role that is not bound to a tenant';
  END IF;
END $$;

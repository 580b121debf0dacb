-- Returns the tenant for which the caller acts, from the setting watchbill.tenant; NULL if it acts
-- for no tenant. A role that is bound to tenants can act only for these. If it is bound to one
-- tenant, the setting may be empty.
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

-- Raises the error for a row of a tenant that the caller may not write. The policies of row
-- security call this last, after all other conditions were false.
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

-- Says whether row security is on.
CREATE OR REPLACE FUNCTION _has_row_security()
RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$ SELECT c.relrowsecurity FROM pg_class c WHERE c.oid = 'jobs'::regclass $$;

-- Says whether the caller may see and change what all tenants share. While row security is off
-- every caller may; while it is on, only callers that see all tenants.
CREATE OR REPLACE FUNCTION _acts_for_all_tenants()
RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$ SELECT NOT _has_row_security() OR sees_all_tenants() $$;

-- Raises unless the caller may change what all tenants share. An operator that is bound to a tenant
-- may not.
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

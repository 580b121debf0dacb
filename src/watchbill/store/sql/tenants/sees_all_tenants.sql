-- Says whether the caller sees the rows of all tenants. Owners, workers and operators do, unless
-- their role is bound to a tenant.
CREATE OR REPLACE FUNCTION sees_all_tenants()
RETURNS boolean
LANGUAGE sql STABLE
AS $$ SELECT coalesce(s.tenant = '', false) FROM caller_scope s $$;

-- Raises unless the caller may act for all tenants. A role that is bound to tenants must not change
-- the quotas of its tenants.
CREATE OR REPLACE FUNCTION _check_sees_all_tenants(tenant text)
RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF NOT sees_all_tenants() THEN
    RAISE EXCEPTION 'tenant % is invalid here: %, and may not act for all tenants',
      quote_nullable(tenant), _describe_caller()
      USING ERRCODE = 'insufficient_privilege',
        HINT = 'this needs an operator that is not bound to a tenant';
  END IF;
END $$;

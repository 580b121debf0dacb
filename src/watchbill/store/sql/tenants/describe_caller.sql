-- after: current_tenant
-- Says who the caller is, for the errors of refused calls: its role, which kinds of work that role
-- does, and for which tenants. A caller learns only about itself.
CREATE OR REPLACE FUNCTION _describe_caller()
RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
  kinds text[] := ARRAY(
    SELECT CASE WHEN k.kind IN ('owner', 'operator') THEN 'an ' ELSE 'a ' END || k.kind
    FROM installation i
    CROSS JOIN unnest('{owner,worker,operator,producer,reader}'::text[])
      WITH ORDINALITY k(kind, n)
    JOIN pg_roles r ON r.rolname = i.role_prefix || '_' || k.kind
    WHERE pg_has_role(_caller(), r.oid, 'USAGE')
    ORDER BY k.n);
  tenants text := (
    SELECT string_agg(DISTINCT b.tenant, ', ')
    FROM tenant_roles b
    WHERE b.role IN (to_regrole(quote_ident(session_user)), to_regrole(quote_ident(_caller()))));
  named text := nullif(current_setting('watchbill.tenant', true), '');
BEGIN
  RETURN format(
    'role %L %s%s',
    _caller(),
    CASE
      -- An owner can do all kinds of work.
      WHEN 'an owner' = ANY (kinds) THEN 'is an owner'
      WHEN kinds = '{}' THEN 'has no role of Watchbill'
      ELSE 'is ' || array_to_string(kinds, ' and ')
    END,
    CASE
      WHEN tenants IS NOT NULL THEN
        ', bound to ' || tenants || coalesce(', and names tenant ' || quote_literal(
          CASE WHEN named <> tenants THEN named END), '')
      WHEN NOT _acts_for_all_tenants() THEN
        ' and acts for ' || coalesce('tenant ' || quote_literal(named), 'no tenant')
      ELSE ''
    END);
END $$;

-- As _describe_caller(), if the caller sees no rows because it acts for no tenant; otherwise NULL.
CREATE OR REPLACE FUNCTION _describe_blind_caller()
RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT _describe_caller() FROM caller_scope s WHERE s.tenant IS NULL AND _has_row_security()
$$;

-- Returns the setting watchbill.tenant, or `default`. It is the tenant of rows that a caller writes
-- without naming a tenant, and the tenant whose rows the facades show. PostgreSQL inlines this
-- function.
CREATE OR REPLACE FUNCTION _session_tenant()
RETURNS text
LANGUAGE sql STABLE
RETURN coalesce(nullif(current_setting('watchbill.tenant', true), ''), 'default');

-- The tenant of what a caller writes without naming one, and whose rows the facades show: the
-- setting watchbill.tenant, or `default`. Inlined.
CREATE OR REPLACE FUNCTION _session_tenant()
RETURNS text
LANGUAGE sql STABLE
RETURN coalesce(nullif(current_setting('watchbill.tenant', true), ''), 'default');

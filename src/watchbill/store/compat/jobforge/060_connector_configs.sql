-- Shows the endpoints of connectors. `config` has references to secrets, never a secret.
CREATE OR REPLACE VIEW @facade@.@prefix@connector_configs
WITH (security_invoker = true) AS
SELECT
  md5(e.tenant || ' ' || e.name)::uuid AS id, e.tenant AS tenant_id, e.name,
  e.kind AS connector_type,
  jsonb_strip_nulls(jsonb_build_object(
    'base_url', e.base_url, 'headers', e.headers, 'auth', e.auth, 'hosts', e.hosts, 'timeout',
    e.timeout)) AS config,
  e.disabled_at IS NULL AS enabled, e.created_at, e.updated_at
FROM connector_endpoints e
WHERE coalesce(nullif(current_setting('watchbill.tenant', true), ''), e.tenant) = e.tenant;

CREATE OR REPLACE TRIGGER refuse_change
INSTEAD OF INSERT OR UPDATE OR DELETE ON @facade@.@prefix@connector_configs
FOR EACH ROW EXECUTE FUNCTION @facade@.@prefix@_refuse_change(
  'call the function set_endpoint or remove_endpoint of Watchbill');

-- What a declaration of this endpoint, as it is now, would say in full.
CREATE OR REPLACE FUNCTION _describe_endpoint(e connector_endpoints, max int, rates rate[])
RETURNS jsonb
LANGUAGE sql IMMUTABLE
RETURN jsonb_build_object(
  'kind', e.kind, 'base_url', e.base_url, 'headers', e.headers, 'auth', e.auth, 'hosts', e.hosts,
  'timeout', e.timeout, 'max', max, 'rates', _show_rates(rates), 'ordered', e.ordered);

-- Lists the endpoints that the caller may see, with their limits. `changed`: an operator has
-- changed what the code declares.
CREATE OR REPLACE FUNCTION endpoint_list(tenant text DEFAULT NULL, name text DEFAULT NULL)
RETURNS TABLE (
  tenant text,
  name text,
  kind text,
  base_url text,
  headers jsonb,
  auth jsonb,
  hosts text[],
  timeout real,
  max int,
  failing_since timestamptz,
  disabled_at timestamptz,
  disabled_reason text,
  owner text,
  changed boolean,
  created_by text,
  created_at timestamptz,
  updated_at timestamptz,
  rates jsonb,
  ordered boolean
)
LANGUAGE sql STABLE AS $$
  SELECT
    e.tenant, e.name, e.kind, e.base_url, e.headers, e.auth, e.hosts, e.timeout, l.max,
    e.failing_since, e.disabled_at, e.disabled_reason, e.owner,
    -- A declaration may lack fields, because its program is older.
    coalesce(x.described || e.declared <> x.described, false),
    e.created_by, e.created_at, e.updated_at, _show_rates(l.rates), e.ordered
  FROM connector_endpoints e
  LEFT JOIN limits l ON l.name = _endpoint_limit(e.tenant, e.name)
  CROSS JOIN LATERAL (SELECT _describe_endpoint(e, l.max, l.rates) AS described) x
  WHERE (endpoint_list.tenant IS NULL OR e.tenant = endpoint_list.tenant)
    AND (endpoint_list.name IS NULL OR e.name = endpoint_list.name)
  ORDER BY e.tenant, e.name
$$;

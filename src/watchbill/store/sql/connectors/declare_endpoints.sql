-- Writes the endpoints that a node's code declares, as declare_limits() does for limits. Each
-- element is an object with tenant, name, kind, base_url, headers, auth, hosts, timeout, max, rates
-- and ordered. What an operator has changed stays until the code changes. Takes an advisory lock
-- per app, and locks the endpoints and their limits.
CREATE OR REPLACE FUNCTION declare_endpoints(
  epoch bigint,
  endpoints jsonb,
  now timestamptz DEFAULT NULL
)
RETURNS TABLE (name text, outcome text)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  node nodes := _lock_declaring_node(epoch);
  tenant text;
  given jsonb;
  definition jsonb;
  old connector_endpoints;
BEGIN
  PERFORM _check_shared_change('declare_endpoints');
  PERFORM _check_limit_declarations('endpoints', endpoints);
  FOR given IN
    SELECT d
    FROM jsonb_array_elements(endpoints) d
    ORDER BY d->>'tenant' COLLATE "C", d->>'name' COLLATE "C"
  LOOP
    tenant := coalesce(given->>'tenant', 'default');
    name := given->>'name';
    definition := given - '{tenant,name}'::text[];
    SELECT *
    INTO old
    FROM connector_endpoints e
    WHERE e.tenant = tenant
      AND e.name = name
    FOR UPDATE;
    outcome := CASE
      WHEN old.name IS NULL THEN 'created'
      ELSE _decide_declaration_outcome(
        node, 'endpoint', _endpoint_limit(tenant, name), definition, old.owner, old.declared,
        old.superseded)
    END;
    IF outcome IN ('created', 'updated') THEN
      PERFORM _write_endpoint(
        name, tenant, definition, node.app, definition,
        _list_superseded_versions(old.superseded, old.declared, definition), t);
    END IF;
    PERFORM _record_limit_declaration(
      node, 'endpoint', _endpoint_limit(tenant, name), definition);
    RETURN NEXT;
  END LOOP;
END $$;

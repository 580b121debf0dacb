-- Removes an endpoint with its limit. Jobs that name it end as dead when they run. Returns whether
-- there was one. An endpoint that a living node declares comes back. Locks its row, its limit and
-- the states of its key.
CREATE OR REPLACE FUNCTION remove_endpoint(
  name text,
  tenant text DEFAULT _session_tenant(),
  now timestamptz DEFAULT NULL
)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
BEGIN
  DELETE FROM connector_endpoints e WHERE e.tenant = tenant AND e.name = name;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM _delete_endpoint_limit(_endpoint_limit(tenant, name), t);
  PERFORM _audit('remove_endpoint', 'endpoint ' || name, tenant, NULL, t);
  RETURN true;
END $$;

-- Deletes the limit of an endpoint, so that the jobs that wait for it may run.
CREATE OR REPLACE FUNCTION _delete_endpoint_limit(limit_name text, t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  DELETE FROM limits l WHERE l.name = limit_name;
  PERFORM _unpark_jobs_of_limit(limit_name, t);
END $$;

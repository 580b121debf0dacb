-- Reads an endpoint for a worker that runs a job of this tenant.
CREATE OR REPLACE FUNCTION _read_endpoint(tenant text, name text)
RETURNS TABLE (
  kind text,
  base_url text,
  headers jsonb,
  auth jsonb,
  hosts text[],
  timeout real,
  is_failing boolean,
  disabled_reason text
)
LANGUAGE sql STABLE AS $$
  SELECT
    e.kind, e.base_url, e.headers, e.auth, e.hosts, e.timeout, e.failing_since IS NOT NULL,
    e.disabled_reason
  FROM connector_endpoints e
  WHERE e.tenant = _read_endpoint.tenant
    AND e.name = _read_endpoint.name
$$;

-- Notes how a delivery to an endpoint ended: `succeeded`, `failed`, or `gone` if the server has
-- answered 410. An endpoint that is gone, or has failed for five days without a success, is
-- disabled. Returns whether this call has disabled it. Locks the row of the endpoint.
CREATE OR REPLACE FUNCTION _report_endpoint(
  tenant text,
  name text,
  outcome text,
  now timestamptz DEFAULT NULL
)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  e connector_endpoints;
  reason text;
BEGIN
  SELECT * INTO e FROM connector_endpoints x WHERE x.tenant = tenant AND x.name = name FOR UPDATE;
  IF NOT FOUND OR e.disabled_at IS NOT NULL THEN RETURN false; END IF;
  reason := CASE
    WHEN outcome = 'gone' THEN (_endpoint_failure_reasons())[1]
    WHEN outcome = 'failed' AND e.failing_since <= t - interval '5 days' THEN
      (_endpoint_failure_reasons())[2]
  END;
  -- While an endpoint fails, most reports change nothing.
  IF reason IS NULL AND outcome <> 'succeeded' AND e.failing_since IS NOT NULL THEN
    RETURN false;
  END IF;
  UPDATE connector_endpoints x
  SET
    failing_since = CASE WHEN outcome <> 'succeeded' THEN coalesce(e.failing_since, t) END,
    disabled_reason = reason,
    disabled_at = CASE WHEN reason IS NOT NULL THEN t END
  WHERE x.tenant = tenant
    AND x.name = name;
  IF reason IS NOT NULL THEN
    PERFORM _audit(
      'disable_endpoint', 'endpoint ' || name, tenant, jsonb_build_object('reason', reason), t);
  END IF;
  RETURN reason IS NOT NULL;
END $$;

-- The reasons for which _report_endpoint() disables an endpoint. Operators give others.
CREATE OR REPLACE FUNCTION _endpoint_failure_reasons()
RETURNS text[]
LANGUAGE sql IMMUTABLE
RETURN '{the server answered 410 Gone,no delivery has succeeded for five days}'::text[];

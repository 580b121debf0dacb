-- Changes those parts of an endpoint that `definition` names, or makes one: kind, base_url,
-- headers, auth, hosts, timeout, max (how many of its jobs run at once; 5 for a new one), rates
-- (how many start in a time; null for none), ordered (whether its jobs run in the order of their
-- enqueues, from then on), disabled (the reason; null enables it). The limit of the endpoint is in
-- the table limits. Locks the row of the endpoint, then its limit and the states of its key.
CREATE OR REPLACE FUNCTION set_endpoint(
  name text,
  definition jsonb,
  tenant text DEFAULT _session_tenant(),
  now timestamptz DEFAULT NULL
)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  t timestamptz := _clock(now);
BEGIN
  PERFORM _write_endpoint(name, tenant, definition, NULL, NULL, '{}', t);
  PERFORM _audit('set_endpoint', 'endpoint ' || name, tenant, definition, t);
END $$;

-- Writes an endpoint for an operator, or for the app `app` that declares `declared`.
CREATE OR REPLACE FUNCTION _write_endpoint(
  name text,
  tenant text,
  definition jsonb,
  app text,
  declared jsonb,
  superseded jsonb[],
  t timestamptz
)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  e connector_endpoints;
BEGIN
  PERFORM _check_endpoint_definition(name, definition);
  SELECT * INTO e FROM connector_endpoints x WHERE x.tenant = tenant AND x.name = name FOR UPDATE;
  IF NOT FOUND THEN
    e.tenant := tenant;
    e.name := name;
    e.created_at := t;
    e.created_by := _actor();
    e.superseded := '{}';
  END IF;
  IF app IS NOT NULL THEN
    e.owner := app;
    e.declared := declared;
    e.superseded := superseded;
  END IF;
  e.updated_at := t;
  e.kind := coalesce(definition->>'kind', e.kind, 'http');
  e.base_url := coalesce(definition->>'base_url', e.base_url);
  e.headers := coalesce(nullif(definition->'headers', 'null'), e.headers, '{}');
  IF definition ? 'auth' THEN e.auth := nullif(definition->'auth', 'null'); END IF;
  IF definition ? 'timeout' THEN e.timeout := definition->>'timeout'; END IF;
  IF definition ? 'hosts' THEN
    e.hosts := ARRAY(SELECT lower(h) FROM jsonb_array_elements_text(definition->'hosts') h);
  END IF;
  e.hosts := coalesce(e.hosts, '{}');
  e.ordered := coalesce((definition->>'ordered')::boolean, e.ordered, false);
  IF definition ? 'disabled' THEN
    e.disabled_reason := definition->>'disabled';
    e.disabled_at := CASE WHEN e.disabled_reason IS NOT NULL THEN coalesce(e.disabled_at, t) END;
    e.failing_since := CASE WHEN e.disabled_reason IS NOT NULL THEN e.failing_since END;
  END IF;
  PERFORM _check_endpoint(e);
  INSERT INTO connector_endpoints
  SELECT e.*
  ON CONFLICT ON CONSTRAINT connector_endpoints_pkey DO UPDATE
  SET
    kind = EXCLUDED.kind,
    base_url = EXCLUDED.base_url,
    headers = EXCLUDED.headers,
    auth = EXCLUDED.auth,
    hosts = EXCLUDED.hosts,
    timeout = EXCLUDED.timeout,
    ordered = EXCLUDED.ordered,
    failing_since = EXCLUDED.failing_since,
    disabled_at = EXCLUDED.disabled_at,
    disabled_reason = EXCLUDED.disabled_reason,
    owner = EXCLUDED.owner,
    declared = EXCLUDED.declared,
    superseded = EXCLUDED.superseded,
    updated_at = EXCLUDED.updated_at;
  PERFORM _write_endpoint_limit(_endpoint_limit(tenant, name), definition, t);
END $$;

-- Writes how many jobs of an endpoint run at once and start in a time, as far as the definition
-- says so. Locks the limit, then the states of its key.
CREATE OR REPLACE FUNCTION _write_endpoint_limit(
  limit_name text,
  definition jsonb,
  t timestamptz
)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  old limits;
  rule limits;
BEGIN
  SELECT * INTO old FROM limits l WHERE l.name = limit_name FOR UPDATE;
  rule := old;
  rule.name := limit_name;
  rule.max := coalesce((definition->>'max')::int, old.max, 5);
  IF definition ? 'rates' THEN
    rule.rates := _read_rates(limit_name, coalesce(nullif(definition->'rates', 'null'), '[]'));
  END IF;
  IF rule IS DISTINCT FROM old THEN PERFORM _write_limit(rule, t); END IF;
END $$;

CREATE OR REPLACE FUNCTION _refuse_endpoint(name text, why text, hint text)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  RAISE EXCEPTION 'endpoint % is invalid: %', quote_nullable(name), why
    USING ERRCODE = 'WB003', HINT = hint;
END $$;

-- Raises if a definition has an unknown field, or one of the wrong kind.
CREATE OR REPLACE FUNCTION _check_endpoint_definition(name text, definition jsonb)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  wrong text;
BEGIN
  IF coalesce(name, '') !~ '^[A-Za-z0-9._-]{1,100}$' THEN
    PERFORM _refuse_endpoint(
      name, 'this is not a name', 'give 1 to 100 letters, digits, dots, hyphens and underscores');
  ELSIF coalesce(jsonb_typeof(definition), '') <> 'object' OR definition = '{}' THEN
    PERFORM _refuse_endpoint(
      name, 'the definition is not an object', 'give {"base_url": "https://..."}, for example');
  ELSIF octet_length(definition::text) > 50000 THEN
    -- A worker reads it for each job.
    PERFORM _refuse_endpoint(
      name, 'the definition has more than 50000 bytes', 'give fewer or shorter headers and hosts');
  END IF;
  SELECT d.key INTO wrong
  FROM jsonb_each(definition) d
  WHERE CASE d.key
      WHEN 'kind' THEN d.value NOT IN ('"http"', '"webhook"')
      WHEN 'base_url' THEN jsonb_typeof(d.value) <> 'string'
      WHEN 'headers' THEN jsonb_typeof(d.value) NOT IN ('object', 'null')
      WHEN 'auth' THEN jsonb_typeof(d.value) NOT IN ('object', 'null')
      WHEN 'hosts' THEN
        jsonb_typeof(d.value) <> 'array'
        OR jsonb_path_exists(d.value, 'strict $[*] ? (@.type() != "string")')
      WHEN 'timeout' THEN NOT _is_number_between(d.value, 0.1, 3600, true)
      WHEN 'max' THEN NOT _is_number_between(d.value, 0, 100000, false)
      WHEN 'rates' THEN jsonb_typeof(d.value) NOT IN ('array', 'null')
      WHEN 'ordered' THEN jsonb_typeof(d.value) <> 'boolean'
      WHEN 'disabled' THEN jsonb_typeof(d.value) NOT IN ('string', 'null')
      ELSE true
    END
  LIMIT 1;
  IF FOUND THEN
    PERFORM _refuse_endpoint(
      name, format('%s has a value that it cannot have, or is unknown', left(wrong, 100)),
      'the fields are kind (http or webhook), base_url, headers, auth, hosts, timeout (0.1 to 3600 '
      'seconds), max, rates (a list), ordered (true or false) and disabled (a reason, or null)');
  END IF;
END $$;

-- Whether a JSON value is a number between two others, or null where `may_be_null`. Of whole
-- numbers only, if `lowest` is 0.
CREATE OR REPLACE FUNCTION _is_number_between(
  value jsonb, lowest numeric, highest numeric, may_be_null boolean
)
RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN CASE jsonb_typeof(value)
    WHEN 'number' THEN
      value::numeric BETWEEN lowest AND highest
      AND (lowest > 0 OR value::numeric = trunc(value::numeric))
    ELSE may_be_null AND jsonb_typeof(value) = 'null'
  END;

-- Raises if an endpoint is invalid. It never holds a secret, only references to secrets.
CREATE OR REPLACE FUNCTION _check_endpoint(e connector_endpoints)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  bad_header text := (
    SELECT h.key
    FROM jsonb_each(e.headers) h
    WHERE h.key !~ '^[A-Za-z0-9!#$%&''*+.^_`|~-]{1,100}$'
      OR jsonb_typeof(h.value) <> 'string'
      OR h.value #>> '{}' !~ '^([!-~]([\t -~]*[!-~])?)?$'
      OR lower(h.key) IN (
        'authorization', 'cookie', 'proxy-authorization', 'host', 'content-length', 'connection',
        'transfer-encoding', 'upgrade', 'te', 'trailer', 'keep-alive', 'expect',
        'accept-encoding', 'proxy-connection')
    LIMIT 1);
BEGIN
  IF coalesce(e.base_url, '') !~ '^https?://[^/?#@\s\\]+(/[^?#\s\\]*)?$'
    OR length(e.base_url) > 2000 THEN
    PERFORM _refuse_endpoint(
      e.name, 'base_url must be an address without user, query and fragment',
      'give https://api.example.com/v2, for example');
  ELSIF bad_header IS NOT NULL THEN
    PERFORM _refuse_endpoint(
      e.name, format('the header %L cannot be set', left(bad_header, 100)),
      'secrets belong into auth, and the connector writes headers of the connection itself');
  ELSIF e.auth IS NOT NULL AND NOT _is_endpoint_auth(e.auth) THEN
    PERFORM _refuse_endpoint(
      e.name, 'auth is neither of its kinds',
      'give {"kind": "bearer", "secret": REFERENCE}, or basic with user and secret, header with '
      'name and secret, signature with secrets; a reference is env:NAME, file:PATH or '
      'resolver:NAME');
  ELSIF (e.kind = 'webhook') <> (coalesce(e.auth->>'kind', '') = 'signature') THEN
    PERFORM _refuse_endpoint(
      e.name, 'a webhook is signed, and only a webhook is',
      'give kind webhook with auth {"kind": "signature", "secrets": ["env:NAME"]}');
  ELSIF length(_endpoint_limit(e.tenant, e.name)) > 220 THEN
    PERFORM _refuse_endpoint(
      e.name, 'tenant and name are too long together', 'its limit has them in its name');
  END IF;
END $$;

-- Whether a JSON value is a reference to a secret.
CREATE OR REPLACE FUNCTION _is_reference(value jsonb)
RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN jsonb_typeof(value) = 'string' AND value #>> '{}' ~ '^(env|file|resolver):\S+$'
  AND length(value #>> '{}') <= 500;

-- Whether a JSON object says how to authenticate, by references only.
CREATE OR REPLACE FUNCTION _is_endpoint_auth(auth jsonb)
RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(
    CASE auth->>'kind'
      WHEN 'bearer' THEN auth - '{kind,secret}'::text[] = '{}' AND _is_reference(auth->'secret')
      WHEN 'basic' THEN
        auth - '{kind,user,secret}'::text[] = '{}'
        AND _is_reference(auth->'secret')
        AND auth->>'user' ~ '^[^:[:cntrl:]]{1,200}$'
      WHEN 'header' THEN
        auth - '{kind,name,secret}'::text[] = '{}'
        AND _is_reference(auth->'secret')
        AND auth->>'name' ~ '^[A-Za-z0-9-]{1,100}$'
      WHEN 'signature' THEN
        auth - '{kind,secrets}'::text[] = '{}'
        AND jsonb_typeof(auth->'secrets') = 'array'
        AND jsonb_array_length(auth->'secrets') BETWEEN 1 AND 10
        AND (
          SELECT bool_and(_is_reference(s))
          FROM jsonb_array_elements(
            CASE jsonb_typeof(auth->'secrets') WHEN 'array' THEN auth->'secrets' ELSE '[]' END) s)
    END,
    false)
$$;

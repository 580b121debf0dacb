-- Stores an API key: its public part `id`, the SHA-256 of the whole key, and what it may do. The
-- name is the actor of what is done with the key, so no other valid key may have it.
CREATE OR REPLACE FUNCTION add_api_key(
  id text,
  hash bytea,
  name text,
  role text,
  tenant text DEFAULT NULL,
  queues text[] DEFAULT '{}',
  types text[] DEFAULT '{}',
  rate float8 DEFAULT NULL,
  expires_at timestamptz DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  stored text;
BEGIN
  PERFORM _check_shared_change('add_api_key');
  PERFORM _check_api_key(id, hash, name, role, tenant, rate, expires_at, t);
  INSERT INTO api_keys AS k (
    id, hash, name, role, tenant, queues, types, rate, created_by, created_at, expires_at)
  VALUES (
    id, hash, name, role, tenant, coalesce(queues, '{}'), coalesce(types, '{}'), rate, _actor(), t,
    expires_at)
  ON CONFLICT DO NOTHING
  RETURNING k.id INTO stored;
  IF stored IS NULL THEN
    RAISE EXCEPTION 'another API key is named %', quote_literal(name)
      USING ERRCODE = 'WB014', HINT = 'give another name, or revoke that key first';
  END IF;
  PERFORM _audit(
    'add_api_key', 'key ' || id, tenant,
    jsonb_strip_nulls(jsonb_build_object(
      'name', name, 'role', role, 'queues', queues, 'types', types, 'rate', rate,
      'expires_at', expires_at)),
    t);
END $$;

-- Raises unless an API key can be like this.
CREATE OR REPLACE FUNCTION _check_api_key(
  id text,
  hash bytea,
  name text,
  role text,
  tenant text,
  rate float8,
  expires_at timestamptz,
  t timestamptz
)
RETURNS void
LANGUAGE plpgsql STABLE AS $$
DECLARE
  wrong text := CASE
      WHEN coalesce(id, '') !~ '^[0-9A-Za-z]{8}$' OR length(hash) IS DISTINCT FROM 32 THEN
        'the key is invalid: let `watchbill keys add` make one'
      WHEN coalesce(length(name), 0) NOT BETWEEN 1 AND 100 THEN
        'name is invalid: give 1 to 100 characters'
      WHEN role IN ('reader', 'producer', 'worker', 'operator', 'admin') IS NOT TRUE THEN
        'role is invalid: give reader, producer, worker, operator or admin'
      WHEN tenant = '' THEN 'tenant is invalid: give a name, or none for all tenants'
      WHEN tenant IS NOT NULL AND role NOT IN ('reader', 'producer') THEN
        'role is invalid: a key with a tenant is a reader or a producer'
      WHEN tenant IS NOT NULL AND NOT _has_row_security() THEN
        'tenants are not kept apart here: run `watchbill db tenants enable` first'
      WHEN NOT rate BETWEEN 0.01 AND 100000 THEN
        'rate is invalid: give requests per second, between 0.01 and 100000'
      WHEN expires_at <= t THEN 'expires_at is invalid: give a time that is to come'
    END;
BEGIN
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION '%', split_part(wrong, ': ', 1)
      USING ERRCODE = 'WB003', HINT = split_part(wrong, ': ', 2);
  END IF;
END $$;

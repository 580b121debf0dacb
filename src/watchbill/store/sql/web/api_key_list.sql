-- Lists the API keys, the newest first, without their hashes. `state` is valid, expired or revoked.
CREATE OR REPLACE FUNCTION api_key_list(now timestamptz DEFAULT NULL)
RETURNS TABLE (
  id text,
  name text,
  role text,
  tenant text,
  queues text[],
  types text[],
  rate float8,
  state text,
  created_by text,
  created_at timestamptz,
  expires_at timestamptz,
  used_at timestamptz,
  revoked_at timestamptz,
  revoked_by text
)
LANGUAGE sql STABLE AS $$
  SELECT
    k.id, k.name, k.role, k.tenant, k.queues, k.types, k.rate,
    CASE
      WHEN k.revoked_at IS NOT NULL THEN 'revoked'
      WHEN k.expires_at <= _clock(api_key_list.now) THEN 'expired'
      ELSE 'valid'
    END,
    k.created_by, k.created_at, k.expires_at, k.used_at, k.revoked_at, k.revoked_by
  FROM api_keys k
  ORDER BY k.created_at DESC, k.id
$$;

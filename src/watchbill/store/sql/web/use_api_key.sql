-- Finds the valid API key with this public part and the SHA-256 of the whole key, or with this
-- public part alone if `hash` is NULL: the dashboard has signed that part in a session's cookie.
-- Notes once a minute that the key was used. Locks its row then.
CREATE OR REPLACE FUNCTION _use_api_key(id text, hash bytea, now timestamptz DEFAULT NULL)
RETURNS TABLE (
  name text,
  role text,
  tenant text,
  queues text[],
  types text[],
  rate float8
)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  k api_keys;
BEGIN
  PERFORM _check_shared_change('_use_api_key');
  SELECT *
  INTO k
  FROM api_keys x
  WHERE x.id = id
    AND (hash IS NULL OR x.hash = hash)
    AND x.revoked_at IS NULL
    AND (x.expires_at IS NULL OR x.expires_at > t);
  IF NOT FOUND THEN RETURN; END IF;
  IF k.used_at IS NULL OR k.used_at < t - interval '1 minute' THEN
    UPDATE api_keys x SET used_at = t
    WHERE x.ctid = (
      SELECT y.ctid
      FROM api_keys y
      WHERE y.id = id
      FOR NO KEY UPDATE SKIP LOCKED);
  END IF;
  RETURN QUERY SELECT k.name, k.role, k.tenant, k.queues, k.types, k.rate;
END $$;

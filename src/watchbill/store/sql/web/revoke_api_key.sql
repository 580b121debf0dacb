-- Revokes the valid API key with this id or name. Returns its id; NULL if there is no such key.
-- Locks its row.
CREATE OR REPLACE FUNCTION revoke_api_key(key text, now timestamptz DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  t timestamptz := _clock(now);
  revoked api_keys;
BEGIN
  PERFORM _check_shared_change('revoke_api_key');
  UPDATE api_keys k
  SET revoked_at = t,
    revoked_by = _actor()
  WHERE k.id = (
      SELECT x.id
      FROM api_keys x
      WHERE x.revoked_at IS NULL
        AND (x.id = key OR x.name = key)
      ORDER BY x.id = key DESC
      LIMIT 1)
    AND k.revoked_at IS NULL
  RETURNING * INTO revoked;
  IF NOT FOUND THEN RETURN NULL; END IF;
  PERFORM _audit(
    'revoke_api_key', 'key ' || revoked.id, revoked.tenant,
    jsonb_build_object('name', revoked.name), t);
  RETURN revoked.id;
END $$;

-- What members have claimed in a scope, by key. The next page comes `after` the last key.
CREATE OR REPLACE FUNCTION item_audit(
  token_group text,
  scope text DEFAULT '',
  max int DEFAULT 10000,
  after text DEFAULT NULL
)
RETURNS TABLE (
  key text,
  node text,
  fence bigint,
  state text,
  claimed_at timestamptz,
  ended_at timestamptz
)
LANGUAGE sql STABLE AS $$
  SELECT i.key, i.node, i.fence, i.state, i.claimed_at, i.ended_at
  FROM item_claims i
  WHERE i.token_group = item_audit.token_group
    AND i.scope = coalesce(item_audit.scope, '')
    AND (item_audit.after IS NULL OR i.key > item_audit.after)
  ORDER BY i.key
  LIMIT max
$$;

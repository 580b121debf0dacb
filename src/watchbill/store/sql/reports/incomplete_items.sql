-- Items that were claimed in a scope at least `older_than` ago and are not finished, the earliest
-- first. `is_held`: a living node still holds the item. The others can be claimed again.
CREATE OR REPLACE FUNCTION incomplete_items(
  token_group text,
  scope text DEFAULT '',
  older_than interval DEFAULT '0',
  max int DEFAULT 10000,
  now timestamptz DEFAULT NULL
)
RETURNS TABLE (key text, node text, fence bigint, claimed_at timestamptz, is_held boolean)
LANGUAGE sql STABLE AS $$
  SELECT
    i.key, i.node, i.fence, i.claimed_at,
    i.state = 'held' AND EXISTS (
      SELECT
      FROM nodes n
      WHERE n.epoch = i.epoch
        AND n.state IN ('active', 'draining'))
  FROM item_claims i
  WHERE i.token_group = incomplete_items.token_group
    AND i.scope = coalesce(incomplete_items.scope, '')
    AND i.state <> 'finished'
    AND i.claimed_at <= _clock(incomplete_items.now) - incomplete_items.older_than
  ORDER BY i.claimed_at, i.key
  LIMIT max
$$;

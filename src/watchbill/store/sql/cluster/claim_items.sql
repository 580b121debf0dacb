-- A member claims items for itself. An item is a key in a scope, such as a date. Only the owner of
-- the key's token may claim it. The token stays with the owner until it finishes or releases the
-- item, or dies. Within a scope an item is finished once; without one it may be claimed again.
-- Returns a row for each key: its fence, or why it was refused: `not owned`, `taken` or `finished`.
-- Locks the node's row FOR KEY SHARE, and the rows of the items.
CREATE OR REPLACE FUNCTION claim_items(
  epoch bigint,
  token_group text,
  keys text[],
  scope text DEFAULT '',
  again boolean DEFAULT false,
  now timestamptz DEFAULT NULL
)
RETURNS TABLE (key text, fence bigint, refused text, node text)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := _clock(claim_items.now);
  wanted_scope text := coalesce(claim_items.scope, '');
  owned text[];
  owned_tokens int[];
  new_fence bigint;
BEGIN
  PERFORM _check_shared_change('claim_items');
  PERFORM _check_isolation('claim_items');
  PERFORM _check_key_sizes('key', claim_items.keys);
  PERFORM _check_key_sizes('scope', ARRAY[wanted_scope]);
  PERFORM _lock_living_node(claim_items.epoch);
  -- In a new statement: the lock may have waited for a hand-over.
  SELECT array_agg(k.key ORDER BY k.key), array_agg(k.token ORDER BY k.key)
  INTO owned, owned_tokens
  FROM (
    SELECT DISTINCT x.key, _route_lane(claim_items.token_group, x.key) - 1 AS token
    FROM unnest(claim_items.keys) x(key)) k
  JOIN tokens o
    ON o.token_group = claim_items.token_group AND o.token = k.token
      AND o.epoch = claim_items.epoch AND o.next IS NULL;
  -- Sorted, so that two calls cannot wait for each other's items.
  PERFORM
  FROM item_claims i
  WHERE i.token_group = claim_items.token_group
    AND i.scope = wanted_scope
    AND i.key = ANY (owned)
  ORDER BY i.key
  FOR UPDATE;
  new_fence := _next_fence();
  RETURN QUERY
    WITH made AS (
      INSERT INTO item_claims AS i (
        token_group, scope, key, token, epoch, node, fence, state, claimed_at)
      SELECT
        claim_items.token_group, wanted_scope, o.key, o.token, claim_items.epoch,
        (SELECT n.name FROM nodes n WHERE n.epoch = claim_items.epoch), new_fence, 'held', t
      FROM unnest(owned, owned_tokens) o(key, token)
      ORDER BY o.key
      ON CONFLICT (token_group, scope, key) DO UPDATE
      SET token = EXCLUDED.token,
        epoch = EXCLUDED.epoch,
        node = EXCLUDED.node,
        fence = EXCLUDED.fence,
        state = 'held',
        claimed_at = EXCLUDED.claimed_at,
        ended_at = NULL
      WHERE i.state = 'released'
        OR i.state = 'held' AND i.epoch <> EXCLUDED.epoch
        OR i.state = 'finished' AND (wanted_scope = '' OR claim_items.again)
      RETURNING i.key)
    SELECT
      k.key,
      CASE WHEN m.key IS NOT NULL THEN new_fence END,
      CASE
        WHEN m.key IS NOT NULL THEN NULL
        WHEN k.key = ANY (coalesce(owned, '{}')) THEN
          CASE i.state WHEN 'finished' THEN 'finished' ELSE 'taken' END
        ELSE 'not owned'
      END,
      i.node
    FROM (SELECT DISTINCT x.key FROM unnest(claim_items.keys) x(key)) k
    LEFT JOIN made m USING (key)
    LEFT JOIN item_claims i
      ON i.token_group = claim_items.token_group AND i.scope = wanted_scope AND i.key = k.key;
END $$;

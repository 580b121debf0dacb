-- Ends items that are held under these fences: as finished, or as released if they may be claimed
-- again. Returns the keys whose fence was stale. Locks the rows of the items.
CREATE OR REPLACE FUNCTION finish_items(
  token_group text,
  keys text[],
  fences bigint[],
  scope text DEFAULT '',
  released boolean DEFAULT false,
  now timestamptz DEFAULT NULL
)
RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  ended text[];
BEGIN
  PERFORM _check_shared_change('finish_items');
  PERFORM
  FROM item_claims i
  WHERE i.token_group = token_group
    AND i.scope = coalesce(scope, '')
    AND i.key = ANY (keys)
  ORDER BY i.key
  FOR UPDATE;
  WITH done AS (
    UPDATE item_claims i
    SET state = CASE WHEN released THEN 'released' ELSE 'finished' END,
      ended_at = t
    FROM unnest(keys, fences) k(key, fence)
    WHERE i.token_group = token_group
      AND i.scope = coalesce(scope, '')
      AND i.key = k.key
      AND i.fence = k.fence
      AND i.state = 'held'
    RETURNING i.key, i.token)
  SELECT array_agg(d.key) INTO ended FROM done d;
  -- The member may be able to pass tokens on now.
  IF EXISTS (
    SELECT
    FROM tokens x
    WHERE x.token_group = token_group
      AND x.next IS NOT NULL) THEN
    PERFORM _wake_members();
  END IF;
  RETURN ARRAY(
    SELECT k.key
    FROM unnest(keys) k(key)
    WHERE k.key <> ALL (coalesce(ended, '{}')));
END $$;

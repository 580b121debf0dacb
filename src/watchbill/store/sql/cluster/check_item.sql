-- Raises unless the item is still held under this fence. Locks its row until the transaction ends,
-- so that no other member can claim the item before. For the caller's own transaction.
CREATE OR REPLACE FUNCTION check_item(
  token_group text,
  key text,
  fence bigint,
  scope text DEFAULT ''
)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  PERFORM _check_shared_change('check_item');
  PERFORM
  FROM item_claims i
  WHERE i.token_group = token_group
    AND i.scope = coalesce(scope, '')
    AND i.key = key
    AND i.fence = fence
    AND i.state = 'held'
  FOR SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'item % is not held under fence % any more',
      quote_literal(key), fence
      USING ERRCODE = 'WB007', HINT = 'roll back: another node may own it now';
  END IF;
END $$;

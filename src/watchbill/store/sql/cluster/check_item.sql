-- Raises unless the item is still held under this fence. Locks its row until the transaction ends,
-- so that no other member can claim the item before. For the caller's own transaction.
CREATE OR REPLACE FUNCTION check_item(
  token_group text,
  key text,
  fence bigint,
  scope text DEFAULT ''
)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
BEGIN
  PERFORM _check_shared_change('check_item');
  PERFORM
  FROM item_claims i
  WHERE i.token_group = check_item.token_group
    AND i.scope = coalesce(check_item.scope, '')
    AND i.key = check_item.key
    AND i.fence = check_item.fence
    AND i.state = 'held'
  FOR SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'item % is not held under fence % any more',
      quote_literal(check_item.key), check_item.fence
      USING ERRCODE = 'WB007', HINT = 'roll back: another node may own it now';
  END IF;
END $$;

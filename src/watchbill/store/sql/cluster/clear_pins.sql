-- Clears pins: those of one key, of one creator, or all. Returns how many keys. The keys go to the
-- owners of their own tokens with a hand-over, as they came. Locks the row of the group.
CREATE OR REPLACE FUNCTION clear_pins(
  token_group text,
  key text DEFAULT NULL,
  created_by text DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  g token_groups := _lock_group(token_group);
  cleared int;
BEGIN
  PERFORM _check_shared_change('clear_pins');
  WITH chosen AS (
      SELECT p.key, p.rank
      FROM pins p
      WHERE p.token_group = g.name
        AND p.state = 'active'
        AND (key IS NULL OR p.key = key)
        AND (created_by IS NULL OR p.created_by = created_by)),
    gone AS (SELECT _drop_alternatives(g.name, array_agg(c.key), array_agg(c.rank)) FROM chosen c)
  SELECT count(DISTINCT c.key) INTO cleared FROM chosen c, gone;
  IF cleared > 0 THEN
    PERFORM _note_pins(g, 'clear_pins', format('%s keys of group %s', cleared, g.name), t);
  END IF;
  RETURN cleared;
END $$;

-- Removes alternatives of pins. The last one of a key stays, as a pin that ends.
CREATE OR REPLACE FUNCTION _drop_alternatives(group_name text, keys text[], ranks int[])
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  UPDATE pins p
  SET state = 'clearing'
  FROM unnest(keys, ranks) k(key, rank)
  WHERE p.token_group = group_name
    AND p.key = k.key
    AND p.rank = k.rank;
  DELETE FROM pins p
  USING unnest(keys) k(key)
  WHERE p.token_group = group_name
    AND p.key = k.key
    AND p.state = 'clearing'
    AND EXISTS (
      SELECT
      FROM pins other
      WHERE other.token_group = group_name
        AND other.key = p.key
        AND (other.state = 'active' OR other.state = p.state AND other.rank < p.rank));
END $$;

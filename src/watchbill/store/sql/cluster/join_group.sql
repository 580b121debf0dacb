-- Makes a living node a member of a group. Its tokens follow with the next rebalance. Locks the row
-- of the group, and that of the node against its loss.
CREATE OR REPLACE FUNCTION join_group(
  epoch bigint,
  token_group text,
  now timestamptz DEFAULT NULL
)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := _clock(join_group.now);
BEGIN
  PERFORM _check_shared_change('join_group');
  PERFORM _lock_group(join_group.token_group);
  PERFORM _lock_living_node(join_group.epoch);
  INSERT INTO members AS m (token_group, epoch, joined_at)
  VALUES (join_group.token_group, join_group.epoch, t)
  ON CONFLICT (token_group, epoch) DO UPDATE SET is_leaving = false WHERE m.is_leaving;
  PERFORM _wake_members();
END $$;

-- Locks the row of a node FOR KEY SHARE, so that it is not declared lost before the transaction
-- ends and none of its tokens is passed on. Raises if the node has ended.
CREATE OR REPLACE FUNCTION _lock_living_node(epoch bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  PERFORM
  FROM nodes n
  WHERE n.epoch = epoch
    AND n.state IN ('active', 'draining')
  FOR KEY SHARE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the node with epoch % is lost', epoch
      USING ERRCODE = 'WB001', HINT = 'register again; other nodes own its tokens';
  END IF;
END $$;

-- The epochs of the members that are alive, in order.
CREATE OR REPLACE FUNCTION _living_members(token_group text)
RETURNS bigint[]
LANGUAGE sql STABLE AS $$
  SELECT ARRAY(
    SELECT m.epoch
    FROM members m
    JOIN nodes n ON n.epoch = m.epoch AND n.state IN ('active', 'draining')
    WHERE m.token_group = _living_members.token_group
    ORDER BY m.epoch)
$$;

-- The epochs of the members that get tokens, in order. They are active, and serve all queues of
-- the group: the owner of a token takes the jobs of its lane in each of these.
CREATE OR REPLACE FUNCTION _eligible_members(token_group text)
RETURNS bigint[]
LANGUAGE sql STABLE AS $$
  SELECT ARRAY(
    SELECT m.epoch
    FROM members m
    JOIN nodes n ON n.epoch = m.epoch AND n.state = 'active'
    WHERE m.token_group = _eligible_members.token_group
      AND NOT m.is_leaving
      AND (n.queues IS NULL OR n.queues @> ARRAY(
        SELECT q.name
        FROM queues q
        WHERE q.token_group = _eligible_members.token_group))
    ORDER BY m.epoch)
$$;

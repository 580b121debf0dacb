-- A node passes on the tokens that the leader wants to move, except those in which it still holds
-- a job or an item. It must have stopped working on their keys before. `version` is the one that it
-- has read: if the group has changed since, it may have to stop more first, so nothing is passed.
-- Returns how many it could not pass yet. Locks the row of the group, then that of the node.
CREATE OR REPLACE FUNCTION pass_tokens(
  epoch bigint,
  token_group text,
  version bigint DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  g token_groups := _lock_group(token_group);
  passed int := 0;
BEGIN
  PERFORM _check_shared_change('pass_tokens');
  PERFORM
  FROM nodes n
  WHERE n.epoch = epoch
    AND n.state IN ('active', 'draining')
  FOR UPDATE;
  IF NOT FOUND THEN PERFORM _lock_living_node(epoch); END IF;
  IF version = g.version OR version IS NULL THEN
    passed := _pass_free_tokens(g.name, epoch, NULL, t);
  END IF;
  IF passed > 0 THEN
    UPDATE token_groups x SET version = x.version + 1 WHERE x.name = g.name;
    PERFORM _wake_members();
    PERFORM _wake_workers('');
  END IF;
  RETURN (
    SELECT count(*)
    FROM tokens x
    WHERE x.token_group = token_group
      AND x.epoch = epoch
      AND x.next IS NOT NULL);
END $$;

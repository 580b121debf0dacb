-- Asks a node to drain: to finish the jobs it runs, release the others and stop. Locks the row of
-- the node FOR UPDATE to wait for its claims; an UPDATE alone does not wait for their KEY SHARE.
CREATE OR REPLACE FUNCTION drain(name text, now timestamptz DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
BEGIN
  PERFORM _check_shared_change('drain');
  PERFORM FROM nodes n WHERE n.name = name AND n.state = 'active' FOR UPDATE;
  UPDATE nodes n SET state = 'draining' WHERE n.name = name AND n.state = 'active';
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM _audit('drain', 'node ' || name, NULL, NULL, t);
  PERFORM _silence_consequences(
    '{"rule": ["no_nodes", "node_down", "unserved", "unsupported", "unmatched", "tokens_unowned",
      "no_leader", "rebalancing", "backlog", "oldest", "slow_pickup"]}',
    'node ' || name || ' drains', t);
  -- Wakes the node, because its next claim reports that it is draining.
  PERFORM pg_notify(_wake_channel(), '');
  RETURN true;
END $$;

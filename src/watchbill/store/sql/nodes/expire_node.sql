-- Declares a node lost before its lease runs out, because its process has died on the caller's
-- machine. Returns false if the node has sent another beat or is locked. Locks the row of its beat
-- and the row of the node.
CREATE OR REPLACE FUNCTION expire_node(
  epoch bigint,
  beat bigint,
  now timestamptz DEFAULT NULL
)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
BEGIN
  PERFORM _check_shared_change('expire_node');
  PERFORM _check_isolation('expire_node');
  PERFORM
  FROM beats b
  JOIN nodes nd ON nd.epoch = b.epoch
  WHERE b.epoch = epoch
    AND b.n = beat
  FOR UPDATE OF b, nd SKIP LOCKED;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM _mark_node_lost(epoch, t);
  RETURN true;
END $$;

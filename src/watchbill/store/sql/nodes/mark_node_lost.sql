-- Marks a node as lost since its last beat, or since now if that is of the future. The caller has
-- locked the node's beat and the node, so the node has no claim that is not committed.
CREATE OR REPLACE FUNCTION _mark_node_lost(node_epoch bigint, t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  last_beat_at timestamptz := least((SELECT b.at FROM beats b WHERE b.epoch = node_epoch), t);
BEGIN
  UPDATE nodes n
  SET state = 'lost',
    ended_at = last_beat_at,
    processed = (SELECT b.processed FROM beats b WHERE b.epoch = node_epoch)
  WHERE n.epoch = node_epoch;
  DELETE FROM beats b WHERE b.epoch = node_epoch;
  -- Keeps the records of runs that the node still has: reclaim() reads when they started.
  DELETE FROM runs r
  WHERE r.epoch = node_epoch
    AND NOT EXISTS (SELECT FROM jobs j WHERE j.id = r.job_id AND j.fence = r.fence);
  PERFORM _end_node_types(node_epoch, last_beat_at);
  PERFORM _end_candidacies(node_epoch, t);
  PERFORM _wake_fellow_members(node_epoch);
  DELETE FROM declarations d WHERE d.epoch = node_epoch;
  DELETE FROM flow_declarations d WHERE d.epoch = node_epoch;
  PERFORM _forget_route_cursors(node_epoch);
  PERFORM _forget_tenant_scans(node_epoch);
  PERFORM _release_orphans();
END $$;

-- Deregisters a node and releases its jobs, without using up an attempt. Locks its beat before its
-- row, as reclaim() does; another order could deadlock.
CREATE OR REPLACE FUNCTION leave(epoch bigint, now timestamptz DEFAULT NULL)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  released int;
  runs_ended bigint := (SELECT b.processed FROM beats b WHERE b.epoch = epoch);
BEGIN
  PERFORM _check_shared_change('leave');
  DELETE FROM beats b WHERE b.epoch = epoch;
  PERFORM FROM nodes n WHERE n.epoch = epoch FOR UPDATE;
  UPDATE nodes n
  SET state = 'left', ended_at = t, processed = runs_ended
  WHERE n.epoch = epoch
    AND n.state IN ('active', 'draining');
  IF NOT FOUND THEN RETURN 0; END IF;
  PERFORM _end_candidacies(epoch, t);
  PERFORM _wake_fellow_members(epoch);
  DELETE FROM declarations d WHERE d.epoch = epoch;
  DELETE FROM flow_declarations d WHERE d.epoch = epoch;
  PERFORM _forget_route_cursors(epoch);
  PERFORM _forget_tenant_scans(epoch);
  PERFORM _release_orphans();
  released := _release_claims(
    ARRAY(SELECT c.fence FROM claims c WHERE c.epoch = epoch), t);
  DELETE FROM runs r WHERE r.epoch = epoch;
  PERFORM _end_node_types(epoch, t);
  -- Its worker may have held the wakeup lock, and other workers relied on that.
  PERFORM pg_notify(_wake_channel(), 'awake');
  RETURN released;
END $$;

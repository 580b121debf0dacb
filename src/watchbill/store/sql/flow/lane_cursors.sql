-- Where the claims of fair and routed queues go on: a cursor is the lane that was served last. All
-- nodes have one place in a fair queue (epoch 0). In a routed queue each node has its own: if all
-- had one, a node whose lanes come first would begin with the same lanes after each claim of
-- another node, and never reach its last lanes.

CREATE OR REPLACE FUNCTION _read_lane_cursor(queue text, epoch bigint)
RETURNS int
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
BEGIN
  RETURN coalesce(
    (SELECT c.lane FROM lane_cursors c WHERE c.epoch = epoch AND c.queue = queue), 0);
END $$;

-- Stores which lane was served last. Skips the write if another claim is about to write: the two
-- claims have then served the same lanes.
CREATE OR REPLACE FUNCTION _write_lane_cursor(queue text, epoch bigint, served_lane int)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  IF NOT pg_try_advisory_xact_lock(_lock_class_turns(), hashtext(epoch || ':' || queue)) THEN
    RETURN;
  END IF;
  UPDATE lane_cursors c SET lane = served_lane WHERE c.epoch = epoch AND c.queue = queue;
  IF FOUND THEN RETURN; END IF;
  INSERT INTO lane_cursors VALUES (epoch, queue, served_lane) ON CONFLICT DO NOTHING;
END $$;

-- Deletes the cursors of a node that has ended, but not one that its last claim is about to write:
-- prune_nodes() does that.
CREATE OR REPLACE FUNCTION _forget_route_cursors(epoch bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  DELETE FROM lane_cursors c
  WHERE c.epoch = epoch
    AND c.queue = ANY (ARRAY(
      SELECT x.queue FROM lane_cursors x WHERE x.epoch = epoch FOR UPDATE SKIP LOCKED));
END $$;

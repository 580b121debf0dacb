-- Where the claims of fair and routed queues go on: a cursor is the lane that was served last. The
-- table limit_states has the cursors, each under a key of its own.

-- A node has its own place in the lanes of each routed queue: its claims go on where its last one
-- ended. If all nodes had one place, a node whose lanes come first would begin with the same lanes
-- after each claim of another node, and never reach its last lanes.
CREATE OR REPLACE FUNCTION _make_route_prefix(epoch bigint)
RETURNS text
LANGUAGE sql IMMUTABLE
RETURN 'route:' || epoch || ':';

-- Deletes the cursors of a node that has ended, but not one that its last claim is about to write.
CREATE OR REPLACE FUNCTION _forget_route_cursors(epoch bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  prefix text := _make_route_prefix(_forget_route_cursors.epoch);
BEGIN
  DELETE FROM limit_states s
  WHERE s.key = ANY (ARRAY(
    SELECT x.key
    FROM limit_states x
    WHERE x.key > prefix
      AND x.key < rtrim(prefix, ':') || ';'
    FOR UPDATE SKIP LOCKED));
END $$;

-- Returns the lane that was served last: of a fair queue by any node, of a routed queue by one
-- node.
CREATE OR REPLACE FUNCTION _read_lane_cursor(cursor_key text)
RETURNS int
LANGUAGE sql STABLE
AS $$
  SELECT coalesce((
    SELECT s.lane_cursor
    FROM limit_states s
    WHERE s.key = _read_lane_cursor.cursor_key), 0)
$$;

-- Stores which lane was served last. Skips the write if another claim is about to write: the two
-- claims have then served the same lanes.
CREATE OR REPLACE FUNCTION _write_lane_cursor(cursor_key text, lane int)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
BEGIN
  IF NOT pg_try_advisory_xact_lock(_lock_class_turns(), hashtext(cursor_key)) THEN RETURN; END IF;
  PERFORM _make_limit_states(ARRAY[cursor_key]);
  UPDATE limit_states s
  SET lane_cursor = _write_lane_cursor.lane
  WHERE s.key = _write_lane_cursor.cursor_key;
END $$;

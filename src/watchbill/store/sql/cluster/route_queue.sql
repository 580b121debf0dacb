-- Routes the jobs of a queue by the tokens of a group: a job that has a route_key runs on the node
-- that owns the key. Jobs that wait already get their lanes. A queue has one group. Locks the rows
-- of the group and the queue, and waiting jobs.
CREATE OR REPLACE FUNCTION route_queue(queue text, token_group text)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  known queues;
BEGIN
  PERFORM _check_shared_change('route_queue');
  SELECT * INTO known FROM queues q WHERE q.name = queue;
  IF known.token_group = token_group THEN RETURN; END IF;
  PERFORM _lock_group(token_group);
  INSERT INTO queues AS q (name, lanes, token_group)
  VALUES (queue, 'route', token_group)
  ON CONFLICT (name) DO UPDATE
  SET lanes = 'route', token_group = EXCLUDED.token_group
  WHERE q.lanes = 'none';
  SELECT * INTO known FROM queues q WHERE q.name = queue;
  IF known.token_group IS DISTINCT FROM token_group THEN
    RAISE EXCEPTION 'queue % cannot be routed by group %: %',
      quote_literal(queue), quote_literal(token_group),
      CASE known.lanes
        WHEN 'share' THEN 'it is a fair queue'
        ELSE 'it is routed by group ' || quote_literal(known.token_group)
      END
      USING ERRCODE = 'WB003', HINT = 'use another queue';
  END IF;
  UPDATE jobs j
  SET lane = _route_lane(token_group, j.route_key)
  WHERE j.queue = queue
    AND j.wait IS NULL
    AND j.route_key IS NOT NULL
    AND j.lane = 0;
  UPDATE token_groups g SET planned_members = NULL WHERE g.name = token_group;
  PERFORM _wake_members();
END $$;

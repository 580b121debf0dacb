-- Removes a token group with its tokens, pins, items and history. Its queues are not routed any
-- more. Refused while the group has living members or its queues have routed jobs. Locks the row of
-- the group. If it routes queues, waits up to 2 seconds for transactions that write jobs: one of
-- them may have routed a job that is not visible yet.
CREATE OR REPLACE FUNCTION remove_group(name text, now timestamptz DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '2s'
AS $$
DECLARE
  t timestamptz := _clock(now);
  g token_groups;
  members text[];
  queue text;
BEGIN
  PERFORM _check_shared_change('remove_group');
  g := _lock_group(name);
  members := _read_node_names(_living_members(g.name));
  IF cardinality(members) > 0 THEN
    RAISE EXCEPTION 'group % has members: %',
      quote_literal(g.name), array_to_string(members, ', ')
      USING ERRCODE = 'WB003', HINT = 'stop them first';
  END IF;
  IF EXISTS (SELECT FROM queues q WHERE q.token_group = g.name) THEN
    BEGIN
      LOCK TABLE jobs IN SHARE MODE;
    EXCEPTION WHEN lock_not_available THEN
      RAISE EXCEPTION 'group % cannot be removed now: a transaction that writes jobs is open',
        quote_literal(g.name)
        USING ERRCODE = 'WB003', HINT = 'try again';
    END;
    SELECT q.name INTO queue
    FROM queues q
    WHERE q.token_group = g.name
      AND EXISTS (SELECT FROM jobs j WHERE j.queue = q.name AND j.route_key IS NOT NULL)
    ORDER BY q.name
    LIMIT 1;
    IF FOUND THEN
      RAISE EXCEPTION 'group % routes unfinished jobs of queue %',
        quote_literal(g.name), quote_literal(queue)
        USING ERRCODE = 'WB003', HINT = 'let a worker finish them, or cancel them';
    END IF;
    UPDATE queues q SET lanes = 'none', token_group = NULL WHERE q.token_group = g.name;
  END IF;
  DELETE FROM tokens x WHERE x.token_group = g.name;
  DELETE FROM pins x WHERE x.token_group = g.name;
  DELETE FROM members x WHERE x.token_group = g.name;
  DELETE FROM item_claims x WHERE x.token_group = g.name;
  DELETE FROM rebalances x WHERE x.token_group = g.name;
  DELETE FROM token_groups x WHERE x.name = g.name;
  PERFORM _audit('remove_group', g.name, NULL, NULL, t);
END $$;

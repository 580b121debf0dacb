-- Asks the leader of a group to divide its tokens again. Locks the row of the group.
CREATE OR REPLACE FUNCTION request_rebalance(token_group text, now timestamptz DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  t timestamptz := _clock(now);
BEGIN
  PERFORM _check_shared_change('request_rebalance');
  PERFORM _lock_group(token_group);
  UPDATE token_groups g SET planned_members = NULL WHERE g.name = token_group;
  PERFORM _audit('request_rebalance', 'group ' || token_group, NULL, NULL, t);
  PERFORM _wake_members();
END $$;

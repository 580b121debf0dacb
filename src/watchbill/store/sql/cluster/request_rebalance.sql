-- Asks the leader of a group to divide its tokens again. Locks the row of the group.
CREATE OR REPLACE FUNCTION request_rebalance(token_group text, now timestamptz DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := _clock(request_rebalance.now);
BEGIN
  PERFORM _check_shared_change('request_rebalance');
  PERFORM _lock_group(request_rebalance.token_group);
  UPDATE token_groups g SET planned_members = NULL WHERE g.name = request_rebalance.token_group;
  PERFORM _audit(
    'request_rebalance', 'group ' || request_rebalance.token_group, NULL, NULL, t);
  PERFORM _wake_members();
END $$;

-- Stores what a node has counted since its last heartbeat: JSON objects with `queue`, `type`,
-- `tenant` and counts of how runs ended. `number` grows with each tally of the node. A tally that
-- is sent again after a lost reply has the same number, and is not stored again. Locks the beat.
CREATE OR REPLACE FUNCTION _report_tally(
  epoch bigint,
  number bigint,
  counts jsonb,
  now timestamptz DEFAULT NULL
)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
BEGIN
  IF _may_be_bound() THEN PERFORM _check_shared_change('_report_tally'); END IF;
  UPDATE beats b SET tally = number WHERE b.epoch = epoch AND b.tally < number;
  IF NOT FOUND THEN RETURN false; END IF;
  INSERT INTO node_counts (
    at, queue, type, tenant, succeeded, skipped, failed, timed_out, snoozed, dead, canceled,
    run_seconds, wait_seconds)
  SELECT
    t, x.queue, x.type, x.tenant, x.succeeded, x.skipped, x.failed, x.timed_out, x.snoozed, x.dead,
    x.canceled, x.run_seconds, x.wait_seconds
  FROM jsonb_to_recordset(counts) AS x(
    queue text, type text, tenant text, succeeded bigint, skipped bigint, failed bigint,
    timed_out bigint, snoozed bigint, dead bigint, canceled bigint, run_seconds float8,
    wait_seconds float8);
  RETURN true;
END $$;

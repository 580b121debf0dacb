-- Makes `successor` the job of a slot. The slot of a chain ends when the whole chain has ended: so
-- the job that starts the chain hands its slot over to a job, made in the same transaction, that
-- waits for all steps. Jobs of later slots that wait for the first job now wait for the successor.
-- Locks the timer FOR NO KEY UPDATE, as a tick does before it makes jobs wait for the job of a
-- slot. The handler of watchbill.flow has set a lock_timeout.
CREATE OR REPLACE FUNCTION _hand_over_slot(id uuid, successor uuid, t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  j jobs;
BEGIN
  SELECT * INTO j FROM jobs x WHERE x.id = id;
  IF j.schedule_id IS NULL THEN RETURN; END IF;
  PERFORM FROM timers x WHERE x.schedule_id = j.schedule_id FOR NO KEY UPDATE;
  UPDATE jobs x
  SET schedule_id = j.schedule_id, slot = j.slot, created_at = j.created_at
  WHERE x.id = successor;
  UPDATE slots s
  SET job_id = successor, started_at = coalesce(s.started_at, t)
  WHERE s.schedule_id = j.schedule_id
    AND s.slot = coalesce(j.slot, j.created_at)
    AND s.job_id = j.id;
  UPDATE dependencies d
  SET parent = successor
  FROM jobs c
  WHERE d.parent = j.id
    AND d.tenant = j.tenant
    AND c.id = d.child
    AND c.schedule_id = j.schedule_id;
  IF FOUND THEN
    UPDATE jobs x SET awaited = true WHERE x.id = successor;
  END IF;
  -- The job that starts the chain has been canceled.
  IF (SELECT x.canceling FROM jobs x WHERE x.id = j.id) THEN
    PERFORM _cancel_schedule_jobs(
      ARRAY[successor],
      (SELECT c.reason FROM cancels c WHERE c.job_id = j.id),
      t);
  END IF;
END $$;

-- Makes the job that waits for all steps of a scheduled chain, and hands the slot of the job `id`
-- over to it. `ends` are the last steps of the chain.
CREATE OR REPLACE FUNCTION _add_chain_end(
  id uuid, steps uuid[], ends uuid[], now timestamptz DEFAULT NULL
)
RETURNS uuid
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  last uuid := uuid7(t);
  new_jobs new_job[] := ARRAY(
    SELECT jsonb_populate_record(NULL::new_job, jsonb_build_object(
      'id', last, 'type', 'watchbill.flow_end', 'payload', jsonb_build_object('ends', ends),
      'queue', j.queue, 'priority', 0, 'tenant', j.tenant, 'max_attempts', 5, 'version', 1,
      'meta', j.meta, 'depends_on', steps, 'run_if', 'all_finished'))
    FROM jobs j
    WHERE j.id = id);
BEGIN
  PERFORM FROM _insert_jobs(new_jobs, false, true, false, NULL, t, builtin => true);
  PERFORM _hand_over_slot(id, last, t);
  RETURN last;
END $$;

-- A slot that starts several jobs has not ended before they have: the job that starts them hands it over to one that waits for all of them. In the transaction of
-- the first, which has made the second in it. From then on the second stands for the slot: for overlap, for the deadline, and for what became of it.
-- Runs that were queued behind the first wait for the second. A tick reads under the timer's lock which job stands for a slot, so it is taken here too: no run is
-- queued behind the first any more once this has looked for them.
CREATE OR REPLACE FUNCTION hand_over_slot(id uuid, successor uuid, now timestamptz DEFAULT NULL)
RETURNS void LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  j jobs;
BEGIN
  SELECT * INTO j FROM jobs x WHERE x.id = hand_over_slot.id;
  IF j.schedule_id IS NULL THEN RETURN; END IF;
  PERFORM FROM timers x WHERE x.schedule_id = j.schedule_id FOR NO KEY UPDATE;
  UPDATE jobs x SET schedule_id = j.schedule_id, slot = j.slot, created_at = j.created_at WHERE x.id = hand_over_slot.successor;
  UPDATE slots s SET job_id = hand_over_slot.successor, started_at = coalesce(s.started_at, clock()) WHERE s.schedule_id = j.schedule_id AND s.slot = coalesce(j.slot, j.created_at) AND s.job_id = j.id;
  UPDATE dependencies d SET parent = hand_over_slot.successor FROM jobs c WHERE d.parent = j.id AND c.id = d.child AND c.schedule_id = j.schedule_id;
  IF FOUND THEN UPDATE jobs x SET awaited = true WHERE x.id = hand_over_slot.successor; END IF;
  IF (SELECT x.canceling FROM jobs x WHERE x.id = j.id) THEN   -- by the tick that this has waited for, say
    PERFORM cancel_runs(ARRAY[hand_over_slot.successor], (SELECT c.reason FROM cancels c WHERE c.job_id = j.id), coalesce(hand_over_slot.now, clock()));
  END IF;
END $$;

-- A slot that starts several jobs has not ended before they have: the job that starts them hands it over to one that waits for all of them. In the transaction of
-- the first, which has made the second in it. From then on the second stands for the slot: for overlap, for the deadline, and for what became of it.
CREATE OR REPLACE FUNCTION hand_over_slot(id uuid, successor uuid) RETURNS void LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  j jobs;
BEGIN
  SELECT * INTO j FROM jobs x WHERE x.id = hand_over_slot.id;
  IF j.schedule_id IS NULL THEN RETURN; END IF;
  UPDATE jobs x SET schedule_id = j.schedule_id, slot = j.slot, created_at = j.created_at WHERE x.id = hand_over_slot.successor;
  UPDATE slots s SET job_id = hand_over_slot.successor WHERE s.schedule_id = j.schedule_id AND s.slot = coalesce(j.slot, j.created_at) AND s.job_id = j.id;
END $$;

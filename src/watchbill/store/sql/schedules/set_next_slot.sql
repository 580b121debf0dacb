-- Makes `slot` the next slot of a schedule, whatever its pattern says. The slots after it follow
-- the pattern again. With NULL the schedule has no further slot until it is changed. Locks the
-- timer FOR UPDATE.
CREATE OR REPLACE FUNCTION _set_next_slot(schedule_id bigint, slot timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  timer timers;
BEGIN
  SELECT * INTO timer FROM timers x WHERE x.schedule_id = schedule_id FOR UPDATE;
  IF slot <= timer.last_slot OR NOT isfinite(slot) THEN
    RAISE EXCEPTION 'next_run % is invalid: the last slot of the schedule was %',
        slot, timer.last_slot
      USING ERRCODE = 'WB003', HINT = 'give a later time';
  END IF;
  UPDATE timers x
  SET next_run = slot, held_slot = NULL
  WHERE x.schedule_id = schedule_id;
  PERFORM _wake_schedulers();
END $$;

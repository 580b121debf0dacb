-- Ends a bulk operation, and forgets what it would still have enqueued. Returns its state, as
-- pause_operation() does.
CREATE OR REPLACE FUNCTION cancel_operation(id bigint, now timestamptz DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  state text := _change_operation(
    id, 'canceled', '{pending,running,paused,failed}', _clock(now));
BEGIN
  IF state = 'canceled' THEN
    DELETE FROM bulk_items i WHERE i.operation = id;
  END IF;
  RETURN state;
END $$;

-- Ends a bulk operation. Returns its state, as pause_operation() does.
CREATE OR REPLACE FUNCTION cancel_operation(id bigint, now timestamptz DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  RETURN _change_operation(id, 'canceled', '{running,paused,failed}', _clock(now));
END $$;

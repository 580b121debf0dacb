-- Goes on with a paused or failed bulk operation. Returns its state, as pause_operation() does.
CREATE OR REPLACE FUNCTION resume_operation(id bigint, now timestamptz DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  RETURN _change_operation(id, 'running', '{paused,failed}', _clock(now));
END $$;

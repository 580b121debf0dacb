-- Goes on with a paused or failed bulk operation, or begins one that has waited for its items.
-- Returns its state, as pause_operation() does.
CREATE OR REPLACE FUNCTION resume_operation(id bigint, now timestamptz DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  RETURN _change_operation(id, 'running', '{pending,paused,failed}', _clock(now));
END $$;

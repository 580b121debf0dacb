-- Returns the error that a change of a stored schedule would raise; NULL if there is none. Does not
-- ask whether the caller is a member of the schedule's role: its writer was.
CREATE OR REPLACE FUNCTION _find_stored_error(s schedules)
RETURNS text
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF to_regrole(quote_ident(s.role)) IS NOT NULL THEN s.role := NULL; END IF;
  PERFORM _refuse_schedule(s.name, _find_schedule_error(s));
  IF s.type = 'watchbill.flow' THEN
    PERFORM _check_scheduled_chain(s.name, s.payload, s.tenant);
  END IF;
  RETURN NULL;
EXCEPTION WHEN data_exception OR SQLSTATE 'WB003' THEN
  RETURN SQLERRM;
END $$;

-- Lists up to `max` stored schedules that today's checks refuse, each with the error that its
-- next change would raise. Earlier versions, which checked less, have stored them. Reads at most
-- 100,000 schedules, and locks none.
CREATE OR REPLACE FUNCTION _list_invalid_schedules(max int)
RETURNS TABLE (error text)
LANGUAGE sql VOLATILE AS $$
  SELECT e.error
  FROM (SELECT s FROM schedules s ORDER BY s.id LIMIT 100000) x
  CROSS JOIN LATERAL _find_stored_error(x.s) e(error)
  WHERE e.error IS NOT NULL
  LIMIT _list_invalid_schedules.max
$$;

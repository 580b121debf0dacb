CREATE OR REPLACE FUNCTION remove_schedule(
  name text,
  tenant text DEFAULT _session_tenant(),
  now timestamptz DEFAULT NULL
)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  removed jsonb;
BEGIN
  DELETE FROM schedules s
  WHERE s.tenant = tenant
    AND s.name = name
  RETURNING _make_schedule_definition(s) INTO removed;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM _audit('remove_schedule', 'schedule ' || name, tenant, removed, t);
  RETURN true;
END $$;

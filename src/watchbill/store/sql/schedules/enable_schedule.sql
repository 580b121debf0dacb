CREATE OR REPLACE FUNCTION _set_schedule_enabled(
  name text, tenant text, value boolean, now timestamptz
)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
BEGIN
  UPDATE schedules s
  SET enabled = value, updated_at = t
  WHERE s.tenant = tenant
    AND s.name = name;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM _audit(
    CASE WHEN value THEN 'enable_schedule' ELSE 'disable_schedule' END,
    'schedule ' || name, tenant, NULL, t);
  RETURN true;
END $$;

CREATE OR REPLACE FUNCTION enable_schedule(
  name text,
  tenant text DEFAULT _session_tenant(),
  now timestamptz DEFAULT NULL
)
RETURNS boolean
LANGUAGE sql VOLATILE
AS $$ SELECT _set_schedule_enabled(name, tenant, true, now) $$;

-- after: enable_schedule
CREATE OR REPLACE FUNCTION disable_schedule(
  name text,
  tenant text DEFAULT _session_tenant(),
  now timestamptz DEFAULT NULL
)
RETURNS boolean
LANGUAGE sql VOLATILE
AS $$ SELECT _set_schedule_enabled(name, tenant, false, now) $$;

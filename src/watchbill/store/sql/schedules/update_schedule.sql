-- Changes the fields of a schedule that `changes` names, and returns whether the schedule exists.
-- Locks the schedule FOR UPDATE.
CREATE OR REPLACE FUNCTION update_schedule(
  name text,
  changes jsonb,
  tenant text DEFAULT _session_tenant(),
  now timestamptz DEFAULT NULL
)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM _check_command_of_caller(jsonb_build_object('name', name) || changes);
  RETURN _change_schedule(name, changes, tenant, now);
END $$;

-- Changes a schedule. Runs with the rights of the owner.
CREATE OR REPLACE FUNCTION _change_schedule(name text, changes jsonb, tenant text, now timestamptz)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  s schedules;
BEGIN
  SELECT *
  INTO s
  FROM schedules x
  WHERE x.tenant = tenant
    AND x.name = name
  FOR UPDATE;
  IF NOT FOUND THEN RETURN false; END IF;
  s := _apply_schedule_definition(s, changes);
  s.updated_at := t;
  PERFORM _write_schedule(s);
  PERFORM _audit('update_schedule', 'schedule ' || name, tenant, changes, s.updated_at);
  RETURN true;
EXCEPTION WHEN unique_violation THEN
  PERFORM _refuse_taken_schedule_name(s.name);
END $$;

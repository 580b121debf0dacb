-- Returns the payload of a job that a schedule makes: the task's arguments, or the SQL command and
-- its role.
CREATE OR REPLACE FUNCTION _make_schedule_payload(s schedules)
RETURNS jsonb
LANGUAGE sql STABLE
RETURN CASE
  WHEN s.command IS NULL THEN s.payload
  ELSE jsonb_build_object('command', s.command, 'role', s.role)
END;

-- Returns the `meta` of a job that a schedule makes: what the handler can read about the schedule
-- and the slot.
CREATE OR REPLACE FUNCTION _make_slot_meta(name text, slot timestamptz, context jsonb)
RETURNS jsonb
LANGUAGE sql STABLE
RETURN CASE
  WHEN context IS NULL THEN jsonb_build_object('schedule', name, 'slot', slot)
  ELSE jsonb_build_object('schedule', name, 'slot', slot, 'context', context)
END;

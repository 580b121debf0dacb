-- Lists the next `n` slots of a schedule, as if it were enabled.
CREATE OR REPLACE FUNCTION preview_schedule(
  name text,
  n int DEFAULT 10,
  tenant text DEFAULT _session_tenant(),
  now timestamptz DEFAULT NULL
)
RETURNS SETOF timestamptz
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
BEGIN
  RETURN QUERY
  SELECT p
  FROM schedules s
  JOIN timers x ON x.schedule_id = s.id
  CROSS JOIN LATERAL _preview_slots(
    s, n, greatest(t, x.last_slot),
    coalesce(s.max_runs - x.slot_runs, 2147483647)) p
  WHERE s.name = name
    AND s.tenant = tenant;
END $$;

CREATE OR REPLACE FUNCTION _preview_slots(s schedules, n int, after timestamptz, runs_left int)
RETURNS SETOF timestamptz
LANGUAGE plpgsql STABLE AS $$
DECLARE
  slot timestamptz := _find_next_slot(s, after);
BEGIN
  FOR i IN 1 .. least(n, runs_left) LOOP
    EXIT WHEN slot IS NULL;
    RETURN NEXT slot;
    slot := _find_next_slot(s, slot);
  END LOOP;
END $$;

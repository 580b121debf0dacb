-- Counts what a backfill with these arguments would do, for at most `max` slots. `obstacles` counts
-- slots for which it makes no job, by reason. The other columns are about those for which it makes
-- one.
CREATE OR REPLACE FUNCTION preview_backfill(
  arguments jsonb,
  max int DEFAULT 10000,
  now timestamptz DEFAULT NULL,
  OUT slots bigint,
  OUT first timestamptz,
  OUT last timestamptz,
  OUT obstacles jsonb,
  OUT is_complete boolean
)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  a jsonb := _complete_backfill(
    arguments, CASE WHEN NOT _acts_for_all_tenants() THEN _read_acting_tenant(NULL) END,
    _clock(now));
  until timestamptz := a->>'until';
  slot timestamptz := (a->>'from')::timestamptz - interval '1 microsecond';
  s schedules;
  reason text;
BEGIN
  SELECT * INTO s FROM schedules x WHERE x.id = (a->>'schedule_id')::bigint;
  slots := 0;
  obstacles := '{}';
  is_complete := false;
  FOR i IN 1 .. greatest(max, 1) LOOP
    slot := _find_next_slot(s, slot);
    is_complete := slot IS NULL OR slot > until;
    EXIT WHEN is_complete;
    reason := _find_backfill_obstacle(s.id, slot, (a->>'only_missed')::boolean);
    IF reason IS NULL THEN
      slots := slots + 1;
      first := coalesce(first, slot);
      last := slot;
    ELSE
      obstacles := _count_reason(obstacles, reason);
    END IF;
  END LOOP;
END $$;

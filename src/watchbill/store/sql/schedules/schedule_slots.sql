-- Returns the first slot later than `after`, of a pattern, an interval or a single time `at`.
-- Intervals are counted from `anchor`.
CREATE OR REPLACE FUNCTION _find_slot_after(
  pattern_id int, every interval, anchor timestamptz, at timestamptz, after timestamptz
)
RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF pattern_id IS NOT NULL THEN
    RETURN (SELECT next_run(r.cron, after) FROM compiled_patterns r WHERE r.id = pattern_id);
  ELSIF every IS NOT NULL THEN
    -- Adds seconds, because `+ every` would add calendar days, which do not always have 24 hours in
    -- the time zone of the session.
    RETURN greatest(
      anchor,
      date_bin(every, after, anchor) + extract(epoch FROM every) * interval '1 second');
  END IF;
  RETURN CASE WHEN at > after THEN at END;
END $$;

-- Returns the last slot earlier than `before`. Works for intervals and for patterns without a
-- modifier only.
CREATE OR REPLACE FUNCTION _find_slot_before(
  pattern_id int, every interval, anchor timestamptz, before timestamptz
)
RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF pattern_id IS NOT NULL THEN
    RETURN (SELECT prev_run(r.cron, before) FROM compiled_patterns r WHERE r.id = pattern_id);
  END IF;
  RETURN date_bin(every, before - interval '1 microsecond', anchor);
END $$;

-- Returns the first slot of a schedule that is later than `after` and lies between the start and
-- the end of the schedule.
CREATE OR REPLACE FUNCTION _find_next_slot(s schedules, after timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
DECLARE
  slot timestamptz := _find_slot_after(
    s.pattern_id, s.every, coalesce(s.start, s.created_at), s.at,
    greatest(after, s.start - interval '1 microsecond'));
BEGIN
  RETURN CASE WHEN slot <= coalesce(s."end", slot) AND _is_readable_time(slot) THEN slot END;
END $$;

-- Decides which of the due slots, from `first` on, run and which are missed. Several slots are due
-- if no scheduler ran for a while. Missed slots, from `first` to `missed_until`, come before those
-- that run. Counts at most 10,000 slots.
CREATE OR REPLACE FUNCTION _classify_due_slots(
  pattern_id int,
  every interval,
  anchor timestamptz,
  at timestamptz,
  first timestamptz,
  "end" timestamptz,
  missed text,
  catch_up int,
  grace interval,
  t timestamptz,
  OUT runs timestamptz[],
  OUT missed_count int,
  OUT missed_until timestamptz,
  OUT last timestamptz,
  OUT next timestamptz
)
LANGUAGE plpgsql STABLE AS $$
DECLARE
  stop timestamptz := least(t, "end");
  oldest timestamptz := coalesce(
    t - CASE missed WHEN 'skip' THEN coalesce(grace, interval '1 minute') ELSE grace END,
    '-infinity');
  most int := CASE missed WHEN 'catch_up' THEN catch_up ELSE 1 END;
  slots timestamptz[];
  x timestamptz := first;
BEGIN
  missed_count := 0;
  last := first;
  runs := ARRAY[first];
  next := _find_slot_after(pattern_id, every, anchor, at, first);
  IF next <= stop AND (SELECT r.has_modifier FROM compiled_patterns r WHERE r.id = pattern_id) THEN
    slots := _list_slots_by_stepping(pattern_id, first, stop);
    last := slots[cardinality(slots)];
    next := _find_slot_after(pattern_id, every, anchor, at, last);
    runs := CASE
      WHEN next <= stop THEN '{}'
      ELSE slots[greatest(1, cardinality(slots) - most + 1):]
    END;
  ELSIF next <= stop THEN
    last := _find_slot_before(pattern_id, every, anchor, stop + interval '1 microsecond');
    next := _find_slot_after(pattern_id, every, anchor, at, last);
    runs := ARRAY[last];
    WHILE cardinality(runs) < most AND runs[1] > first AND runs[1] >= oldest LOOP
      runs := _find_slot_before(pattern_id, every, anchor, runs[1]) || runs;
    END LOOP;
  END IF;
  IF oldest > runs[1] THEN
    runs := ARRAY(SELECT r FROM unnest(runs) r WHERE r >= oldest ORDER BY r);
  END IF;
  IF slots IS NOT NULL THEN
    missed_count := cardinality(slots) - cardinality(runs);
    missed_until := slots[missed_count];
  ELSE
    WHILE x <= last AND x < coalesce(runs[1], 'infinity') AND missed_count < 10000 LOOP
      missed_count := missed_count + 1;
      missed_until := x;
      x := _find_slot_after(pattern_id, every, anchor, at, x);
    END LOOP;
    IF missed_count = 10000 AND x <= last THEN
      missed_until := CASE
        WHEN runs = '{}' THEN last
        ELSE _find_slot_before(pattern_id, every, anchor, runs[1])
      END;
    END IF;
  END IF;
  IF next > "end" THEN next := NULL; END IF;
END $$;

-- Lists the slots from `first` to `stop` of a pattern with a modifier, where each slot can only be
-- computed from the one before. Stops after 10,000 slots: all of these are missed, and the next
-- tick continues.
CREATE OR REPLACE FUNCTION _list_slots_by_stepping(
  pattern_id int, first timestamptz, stop timestamptz
)
RETURNS timestamptz[]
LANGUAGE plpgsql STABLE AS $$
DECLARE
  parsed cron := (SELECT r.cron FROM compiled_patterns r WHERE r.id = pattern_id);
  slots timestamptz[] := ARRAY[first];
  slot timestamptz := first;
BEGIN
  FOR i IN 2 .. 10000 LOOP
    slot := next_run(parsed, slot);
    EXIT WHEN slot IS NULL OR slot > stop;
    slots := slots || slot;
  END LOOP;
  RETURN slots;
END $$;

-- Returns by how much the job of a slot runs later: a part of `jitter` that looks random and is
-- always the same for a slot. It is not IMMUTABLE, because extract() is not, and PostgreSQL would
-- not inline it.
CREATE OR REPLACE FUNCTION _compute_slot_jitter(
  jitter interval, schedule_id bigint, slot timestamptz
)
RETURNS interval
LANGUAGE sql STABLE
RETURN jitter * (
  (hashint8extended(schedule_id, extract(epoch FROM slot)::bigint) & 1048575) / 1048576.0::float8);

-- When a schedule is due: the arithmetic of slots, without a look at timers or jobs.

-- The first slot later than this instant, of a parsed pattern, a fixed interval counted from its anchor, or one instant.
CREATE OR REPLACE FUNCTION slot_after(rhythm int, every interval, anchor timestamptz, at timestamptz, after timestamptz) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  step bigint;
BEGIN
  IF slot_after.rhythm IS NOT NULL THEN
    RETURN (SELECT next_run(r.cron, slot_after.after) FROM rhythms r WHERE r.id = slot_after.rhythm);
  ELSIF slot_after.every IS NOT NULL THEN
    step := extract(epoch FROM slot_after.every) * 1000000;
    RETURN slot_after.anchor + greatest(0, floor((extract(epoch FROM slot_after.after) - extract(epoch FROM slot_after.anchor)) * 1000000 / step)::bigint + 1)
      * step * interval '1 microsecond';
  END IF;
  RETURN CASE WHEN slot_after.at > slot_after.after THEN slot_after.at END;
END $$;

-- The last slot earlier than this instant. Not for a chained rhythm, in which each slot follows from the one before.
CREATE OR REPLACE FUNCTION slot_before(rhythm int, every interval, anchor timestamptz, before timestamptz) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  step bigint;
BEGIN
  IF slot_before.rhythm IS NOT NULL THEN
    RETURN (SELECT prev_run(r.cron, slot_before.before) FROM rhythms r WHERE r.id = slot_before.rhythm);
  END IF;
  step := extract(epoch FROM slot_before.every) * 1000000;
  RETURN slot_before.anchor + (ceil((extract(epoch FROM slot_before.before) - extract(epoch FROM slot_before.anchor)) * 1000000 / step)::bigint - 1)
    * step * interval '1 microsecond';
END $$;

-- The first slot of this schedule later than an instant, within its start and end. Says nothing of what it has done before.
CREATE OR REPLACE FUNCTION first_slot(s schedules, after timestamptz) RETURNS timestamptz LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
  slot timestamptz := slot_after((s).rhythm, (s).every, coalesce((s).start, (s).created_at), (s).at, greatest(after, (s).start - interval '1 microsecond'));
BEGIN
  RETURN CASE WHEN slot <= coalesce((s)."end", 'infinity') THEN slot END;
END $$;

-- Several slots may be due, from `first` on, when nobody looked for a while: which of them run, which are gone, and when the next one is.
-- What runs is always the end of the row, what is gone its beginning: `gone` of them, from `first` to `gone_to`. Counting stops at 10,000.
CREATE OR REPLACE FUNCTION due_slots(rhythm int, every interval, anchor timestamptz, at timestamptz, first timestamptz, "end" timestamptz, missed text, catch_up int,
  grace interval, t timestamptz, OUT runs timestamptz[], OUT gone int, OUT gone_to timestamptz, OUT last timestamptz, OUT next timestamptz)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
DECLARE
  stop timestamptz := least(t, "end");
  oldest timestamptz := coalesce(t - CASE missed WHEN 'skip' THEN coalesce(grace, interval '1 minute') ELSE grace END, '-infinity');
  wanted int := CASE missed WHEN 'catch_up' THEN catch_up ELSE 1 END;
  due timestamptz[];
  x timestamptz := first;
BEGIN
  gone := 0;
  last := first;
  runs := ARRAY[first];
  next := slot_after(rhythm, every, anchor, at, first);
  IF next <= stop AND (SELECT r.chained FROM rhythms r WHERE r.id = rhythm) THEN
    due := chained_slots(rhythm, first, stop);
    last := due[cardinality(due)];
    next := slot_after(rhythm, every, anchor, at, last);
    runs := CASE WHEN next <= stop THEN '{}' ELSE due[greatest(1, cardinality(due) - wanted + 1):] END;
  ELSIF next <= stop THEN
    last := slot_before(rhythm, every, anchor, stop + interval '1 microsecond');
    next := slot_after(rhythm, every, anchor, at, last);
    runs := ARRAY[last];
    WHILE cardinality(runs) < wanted AND runs[1] > first AND runs[1] >= oldest LOOP
      runs := slot_before(rhythm, every, anchor, runs[1]) || runs;
    END LOOP;
  END IF;
  IF oldest > runs[1] THEN runs := ARRAY(SELECT r FROM unnest(runs) r WHERE r >= oldest ORDER BY r); END IF;
  IF due IS NOT NULL THEN
    gone := cardinality(due) - cardinality(runs);
    gone_to := due[gone];
  ELSE
    WHILE x <= last AND x < coalesce(runs[1], 'infinity') AND gone < 10000 LOOP
      gone := gone + 1;
      gone_to := x;
      x := slot_after(rhythm, every, anchor, at, x);
    END LOOP;
    IF gone = 10000 AND x <= last THEN gone_to := CASE WHEN runs = '{}' THEN last ELSE slot_before(rhythm, every, anchor, runs[1]) END; END IF;
  END IF;
  IF next > "end" THEN next := NULL; END IF;
END $$;

-- The slots from `first` to `stop`, each from the one before. It stops after 10,000: those are gone then, and the next call goes on.
CREATE OR REPLACE FUNCTION chained_slots(rhythm int, first timestamptz, stop timestamptz) RETURNS timestamptz[] LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
  parsed cron := (SELECT r.cron FROM rhythms r WHERE r.id = chained_slots.rhythm);
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

-- Always the same share of its jitter for the same slot.
CREATE OR REPLACE FUNCTION jittered(jitter interval, schedule_id bigint, slot timestamptz) RETURNS interval LANGUAGE sql STABLE   -- not IMMUTABLE, which extract is not: it would not be inlined
  RETURN jitter * ((hashint8extended(schedule_id, extract(epoch FROM slot)::bigint) & 1048575) / 1048576.0::float8);

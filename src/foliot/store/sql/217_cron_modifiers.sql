-- E and S modifiers: a trigger, and the end or start of a period that is counted from it. src/foliot/cron/modifiers.py says what they mean.
-- The steps stand in c from m = c[b + 23] on: whether to the end, how many, then unit and count of each. Units are 1 second, 2 minute, 3 hour,
-- 4 day, 5 week, 6 month, 7 quarter, 8 year.

-- What a modifier makes of a wall time, beginning `later` of its largest unit after it.
CREATE OR REPLACE FUNCTION cron_apply(c bigint[], m int, wall bigint, later bigint DEFAULT 0) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  size bigint;
  month bigint;
BEGIN
  IF later > 0 THEN wall := cron_moved_on(c, m, wall, later); END IF;
  FOR step IN 0 .. c[m + 1]::int - 1 LOOP
    size := cron_unit_size(c[m + 2 + 2 * step]);
    IF c[m + 2 + 2 * step] < 6 THEN                      -- weeks begin on Monday, and 1970-01-01 was a Thursday
      wall := wall - cron_modulo(wall + 259200, size) + c[m + 3 + 2 * step] * size;
      wall := CASE WHEN c[m] = 1 THEN wall + size - 1 ELSE wall END;
    ELSE
      month := (cron_month_number(wall) / size + c[m + 3 + 2 * step]) * size;
      wall := CASE WHEN c[m] = 1 THEN cron_month_wall(month + size) - 1 ELSE cron_month_wall(month) END;
    END IF;
  END LOOP;
  RETURN wall;
END $$;

-- The wall time so many of the largest unit later; a day that the month does not have is its last.
CREATE OR REPLACE FUNCTION cron_moved_on(c bigint[], m int, wall bigint, later bigint) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  unit bigint := 1;
  month bigint := cron_month_number(wall);
  target bigint;
BEGIN
  FOR step IN 0 .. c[m + 1]::int - 1 LOOP unit := greatest(unit, c[m + 2 + 2 * step]); END LOOP;
  IF unit < 6 THEN RETURN wall + later * cron_unit_size(unit); END IF;
  target := month + later * cron_unit_size(unit);
  RETURN least(cron_month_wall(target) + wall - cron_month_wall(month), cron_month_wall(target + 1) - 86400 + cron_modulo(wall, 86400));
END $$;

-- Seconds of the units up to a week, months of the others.
CREATE OR REPLACE FUNCTION cron_unit_size(unit bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN CASE unit WHEN 1 THEN 1 WHEN 2 THEN 60 WHEN 3 THEN 3600 WHEN 4 THEN 86400 WHEN 5 THEN 604800 WHEN 6 THEN 1 WHEN 7 THEN 3 ELSE 12 END;
END $$;

-- By how much at most a modifier can take a wall time back.
CREATE OR REPLACE FUNCTION cron_reach(c bigint[], m int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  reach bigint := 0;
BEGIN
  FOR step IN 0 .. c[m + 1]::int - 1 LOOP
    reach := reach + CASE c[m + 2 + 2 * step] WHEN 6 THEN 2678400 WHEN 7 THEN 7948800 WHEN 8 THEN 31622400 ELSE cron_unit_size(c[m + 2 + 2 * step]) END;
  END LOOP;
  RETURN reach;
END $$;

-- Months since January of year 0, and the wall time at which such a month begins. Both count from 400 years earlier, lest anything be negative.
CREATE OR REPLACE FUNCTION cron_month_number(wall bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  day bigint := (wall + 74784816000) / 86400;            -- since March of the year -400
  year bigint := day % 146097;
BEGIN
  year := day / 146097 * 400 + (year - year / 1460 + year / 36524 - year / 146096) / 365;
  RETURN year * 12 + (5 * (day - (365 * year + year / 4 - year / 100 + year / 400)) + 2) / 153 - 4798;
END $$;

CREATE OR REPLACE FUNCTION cron_month_wall(number bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN cron_month_start(number + 4798) * 86400 - 74784816000;
END $$;

-- The first pass of a wall time that is not before an instant, else its last.
CREATE OR REPLACE FUNCTION cron_pass_from(zone int, t bigint, wall bigint) RETURNS bigint LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  first bigint := zone_first(zone, wall);
BEGIN
  RETURN CASE WHEN first >= t THEN first ELSE coalesce(zone_second(zone, wall), first) END;
END $$;

-- {trigger, result} behind the next result later than t; NULL if there is none.
CREATE OR REPLACE FUNCTION cron_span(c bigint[], b int, t bigint) RETURNS bigint[] LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  trigger bigint;
  result bigint;
BEGIN
  IF c[b + 1] = 3 THEN RETURN cron_bare_span(c, b, t); END IF;
  trigger := cron_trigger_after(c, b, t);
  WHILE trigger <= 253402300799 LOOP
    result := cron_result(c, b, trigger, t);
    IF result > t THEN RETURN ARRAY[trigger, result]; END IF;
    trigger := cron_trigger_after(c, b, cron_last_useless(c, b, trigger, t));
  END LOOP;
  RETURN NULL;
END $$;

-- A modifier alone: counted from t itself, and where that leads nowhere, from a period later.
CREATE OR REPLACE FUNCTION cron_bare_span(c bigint[], b int, t bigint) RETURNS bigint[] LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  zone int := c[b + 2];
  wall bigint := t + (zone_segment(zone, t))[3];
  result bigint;
  later bigint := 0;
BEGIN
  LOOP
    result := cron_pass_from(zone, t + 1, cron_apply(c, c[b + 23]::int, wall, later));
    IF result > t THEN RETURN ARRAY[t, result]; END IF;
    later := later + 1;
  END LOOP;
END $$;

CREATE OR REPLACE FUNCTION cron_result(c bigint[], b int, trigger bigint, t bigint) RETURNS bigint LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  zone int := c[b + 2];
  m int := c[b + 23];
BEGIN
  RETURN cron_pass_from(zone, CASE WHEN c[m] = 1 THEN trigger ELSE t + 1 END, cron_apply(c, m, trigger + (zone_segment(zone, trigger))[3]));
END $$;

-- The last instant of the trigger's segment from which the modifier does not lead past t either.
CREATE OR REPLACE FUNCTION cron_last_useless(c bigint[], b int, trigger bigint, t bigint) RETURNS bigint LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  segment bigint[] := zone_segment(c[b + 2]::int, trigger);
BEGIN
  RETURN coalesce(cron_last_where(c, b, 'useless', segment, t, trigger, least(segment[2], trigger + cron_reach(c, c[b + 23]::int) + 172800)), trigger);
END $$;

-- The greatest number from low to below high with a property that holds up to some number and not beyond. For 'useless' numbers are instants
-- that lead no further than t; else walls whose result, by way of early or late, is before t.
CREATE OR REPLACE FUNCTION cron_last_where(c bigint[], b int, property text, segment bigint[], t bigint, low bigint, high bigint) RETURNS bigint
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  step bigint := 1;
  good bigint;
  bad bigint;
BEGIN
  IF low >= high THEN RETURN NULL; END IF;
  WHILE high - step > low AND NOT cron_holds(c, b, property, segment, t, high - step) LOOP step := step * 2; END LOOP;
  good := greatest(high - step, low);
  bad := high - step / 2;
  IF NOT cron_holds(c, b, property, segment, t, good) THEN RETURN NULL; END IF;
  WHILE bad - good > 1 LOOP
    step := (good + bad) / 2;                            -- rounded either way it lies between the two
    IF cron_holds(c, b, property, segment, t, step) THEN good := step; ELSE bad := step; END IF;
  END LOOP;
  RETURN good;
END $$;

CREATE OR REPLACE FUNCTION cron_holds(c bigint[], b int, property text, segment bigint[], t bigint, x bigint) RETURNS boolean
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN CASE WHEN property = 'useless' THEN cron_result(c, b, x, t) <= t ELSE cron_mapped(c, b, property, segment, x) < t END;
END $$;

-- The instant of a result, from the trigger's wall time: by its first pass, or by the one that is not before its trigger.
CREATE OR REPLACE FUNCTION cron_mapped(c bigint[], b int, mapping text, segment bigint[], wall bigint) RETURNS bigint
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  zone int := c[b + 2];
  result bigint := cron_apply(c, c[b + 23]::int, wall);
BEGIN
  RETURN CASE mapping WHEN 'early' THEN zone_first(zone, result) ELSE cron_pass_from(zone, wall - segment[3], result) END;
END $$;

-- The greatest result of any trigger that is earlier than t. Across a clock put back a later trigger may have an earlier result, so this goes
-- back segment by segment until nothing earlier can win.
CREATE OR REPLACE FUNCTION cron_result_before(c bigint[], b int, t bigint) RETURNS bigint LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  segment bigint[] := cron_latest_segment(c, b, t);
  early bigint;
  late bigint;
  best bigint;
BEGIN
  WHILE segment IS NOT NULL LOOP
    late := cron_last_trigger(c, b, 'late', segment, t);
    early := CASE WHEN c[c[b + 23]::int] = 1 THEN late ELSE cron_last_trigger(c, b, 'early', segment, t) END;
    best := greatest(best, cron_mapped(c, b, 'late', segment, late));
    IF c[c[b + 23]::int] = 0 THEN best := greatest(best, cron_mapped(c, b, 'early', segment, early)); END IF;
    EXIT WHEN early >= segment[4] AND late >= segment[4];
    segment := cron_segment_before(c, b, segment);
  END LOOP;
  RETURN best;
END $$;

-- The last segment in which a trigger can have a result before t.
CREATE OR REPLACE FUNCTION cron_latest_segment(c bigint[], b int, t bigint) RETURNS bigint[] LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  zone int := c[b + 2];
  wall bigint := cron_last_where(c, b, 'early', '{}', t, -62135769600, least(t + cron_reach(c, c[b + 23]::int), 253402300799) + 172800);
BEGIN
  RETURN zone_segment(zone, zone_first(zone, wall) + 172800);
END $$;

-- The wall time of the last trigger in a segment whose result is earlier than t. A modifier alone is triggered by any time, skipped ones included.
CREATE OR REPLACE FUNCTION cron_last_trigger(c bigint[], b int, mapping text, segment bigint[], t bigint) RETURNS bigint
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  bare boolean := c[b + 1] = 3;
  low bigint := greatest(segment[1], -62135596800) + segment[3];
  high bigint := least(segment[2], 253402300800, t + cron_reach(c, c[b + 23]::int) + 172800) + segment[3];
  wall bigint;
  trigger bigint;
BEGIN
  IF bare THEN low := least(low, greatest(segment[4], -62135596800 + segment[3])); END IF;
  wall := cron_last_where(c, b, mapping, segment, t, low, high);
  IF bare OR wall IS NULL THEN RETURN wall; END IF;
  trigger := cron_trigger_before(c, b, wall - segment[3] + 1);
  RETURN CASE WHEN trigger >= greatest(segment[1], -62135596800) THEN trigger + segment[3] END;
END $$;

-- The last earlier segment that has a trigger.
CREATE OR REPLACE FUNCTION cron_segment_before(c bigint[], b int, segment bigint[]) RETURNS bigint[] LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  trigger bigint;
BEGIN
  IF segment[1] <= -62135596800 THEN RETURN NULL; END IF;
  trigger := CASE WHEN c[b + 1] = 3 THEN segment[1] - 1 ELSE cron_trigger_before(c, b, segment[1]) END;
  RETURN CASE WHEN trigger >= -62135596800 OR c[b + 1] = 3 THEN zone_segment(c[b + 2]::int, trigger) END;
END $$;

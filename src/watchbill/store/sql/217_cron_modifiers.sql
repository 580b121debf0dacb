-- E and S modifiers: a trigger, and the end or start of a period that is counted from it. src/watchbill/cron/modifiers.py says what they mean.
-- The steps stand in c from m = c[b + 23] on: whether to the end, how many, then count and unit of each. Units are 1 second, 2 minute, 3 hour,
-- 4 day, 5 week, 6 month, 7 quarter, 8 year.

-- What a modifier makes of a wall time.
CREATE OR REPLACE FUNCTION cron_apply(c bigint[], m int, wall bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  size bigint;
  month bigint;
BEGIN
  FOR step IN 0 .. c[m + 1]::int - 1 LOOP
    size := cron_unit_size(c[m + 3 + 2 * step]);
    IF c[m + 3 + 2 * step] < 6 THEN                      -- weeks begin on Monday, and 1970-01-01 was a Thursday
      wall := wall - cron_modulo(wall + 259200, size) + c[m + 2 + 2 * step] * size;
      wall := CASE WHEN c[m] = 1 THEN wall + size - 1 ELSE wall END;
    ELSE
      month := (cron_month_number(wall) / size + c[m + 2 + 2 * step]) * size;
      wall := CASE WHEN c[m] = 1 THEN cron_month_wall(month + size) - 1 ELSE cron_month_wall(month) END;
    END IF;
  END LOOP;
  RETURN wall;
END $$;

-- The last wall time from which a modifier leads no further than to this one: its steps, undone from the end. What is earlier than year -300 could
-- not come back to the years that count, and is -300 itself.
CREATE OR REPLACE FUNCTION cron_latest_before(c bigint[], m int, wall bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  size bigint;
  month bigint;
BEGIN
  FOR step IN REVERSE c[m + 1]::int - 1 .. 0 LOOP
    size := cron_unit_size(c[m + 3 + 2 * step]);
    wall := wall + c[m];
    IF c[m + 3 + 2 * step] < 6 THEN
      wall := wall - cron_modulo(wall + 259200, size) - (c[m + 2 + 2 * step] + c[m] - 1) * size - 1;
    ELSE
      month := cron_month_number(wall);
      month := month - cron_modulo(month, size) - (c[m + 2 + 2 * step] + c[m] - 1) * size;
      wall := cron_month_wall(greatest(month, -3600)) - 1;
    END IF;
    IF wall < -71634326400 THEN RETURN -71634326400; END IF;
  END LOOP;
  RETURN wall;
END $$;

-- The wall time so many units later; a day that the month does not have is its last.
CREATE OR REPLACE FUNCTION cron_moved_on(unit bigint, wall bigint, count bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  month bigint := cron_month_number(wall);
  target bigint := month + count * cron_unit_size(unit);
BEGIN
  IF unit < 6 THEN RETURN wall + count * cron_unit_size(unit); END IF;
  RETURN least(cron_month_wall(target) + wall - cron_month_wall(month), cron_month_wall(target + 1) - 86400 + cron_modulo(wall, 86400));
END $$;

CREATE OR REPLACE FUNCTION cron_largest_unit(c bigint[], m int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  unit bigint := 1;
BEGIN
  FOR step IN 0 .. c[m + 1]::int - 1 LOOP unit := greatest(unit, c[m + 3 + 2 * step]); END LOOP;
  RETURN unit;
END $$;

-- Seconds of the units up to a week, months of the others. PostgreSQL puts the expression in place of the call.
CREATE OR REPLACE FUNCTION cron_unit_size(unit bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ('{1,60,3600,86400,604800,1,3,12}'::bigint[])[unit];

-- Months since January of year 0, and the wall time at which such a month begins. Both count from 400 years earlier, lest anything be negative.
CREATE OR REPLACE FUNCTION cron_month_number(wall bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  day bigint := (wall + 74784816000) / 86400;            -- since March of the year -400
  year bigint := day % 146097;
BEGIN
  year := day / 146097 * 400 + (year - year / 1460 + year / 36524 - year / 146096) / 365;
  RETURN year * 12 + (5 * (day - (365 * year + year / 4 - year / 100 + year / 400)) + 2) / 153 - 4798;
END $$;

CREATE OR REPLACE FUNCTION cron_month_wall(number bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN cron_month_start(number + 4798) * 86400 - 74784816000;

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
  latest bigint;
BEGIN
  IF c[b + 1] = 3 THEN RETURN cron_bare_span(c, b, t); END IF;
  trigger := cron_trigger_after(c, b, t);
  WHILE trigger <= 253402300799 LOOP
    result := cron_result(c, b, trigger, t);
    IF result > t THEN RETURN ARRAY[trigger, result]; END IF;
    latest := coalesce(latest, cron_latest(c, b, t + 1));
    trigger := cron_trigger_after(c, b, cron_last_useless(c, b, trigger, t, latest));
  END LOOP;
  RETURN NULL;
END $$;

-- A modifier alone: counted from t itself, and where that leads nowhere, from a period later.
CREATE OR REPLACE FUNCTION cron_bare_span(c bigint[], b int, t bigint) RETURNS bigint[] LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  zone int := c[b + 2];
  wall bigint := t + (zone_segment(zone, t))[3];
  useless bigint := cron_last_where(c, b, 'bare', '{}', t, wall, cron_latest(c, b, t + 1) + 1);
  unit bigint := cron_largest_unit(c, c[b + 23]::int);
  later bigint := 0;
BEGIN
  WHILE cron_moved_on(unit, wall, later) <= useless LOOP later := later + 1; END LOOP;
  RETURN ARRAY[t, cron_pass_from(zone, t + 1, cron_apply(c, c[b + 23]::int, cron_moved_on(unit, wall, later)))];
END $$;

-- The last wall time of a trigger whose result is earlier than t, at least in its first pass.
CREATE OR REPLACE FUNCTION cron_latest(c bigint[], b int, t bigint) RETURNS bigint LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  segment bigint[] := zone_segment(c[b + 2]::int, t - 1);
BEGIN
  RETURN cron_latest_before(c, c[b + 23]::int, greatest(t - 1 + segment[3], segment[4] - 1));
END $$;

CREATE OR REPLACE FUNCTION cron_result(c bigint[], b int, trigger bigint, t bigint) RETURNS bigint LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  zone int := c[b + 2];
  m int := c[b + 23];
BEGIN
  RETURN cron_pass_from(zone, CASE WHEN c[m] = 1 THEN trigger ELSE t + 1 END, cron_apply(c, m, trigger + (zone_segment(zone, trigger))[3]));
END $$;

-- An instant up to which triggers, from this one on, do not lead past t either.
CREATE OR REPLACE FUNCTION cron_last_useless(c bigint[], b int, trigger bigint, t bigint, latest bigint) RETURNS bigint LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  segment bigint[] := zone_segment(c[b + 2]::int, trigger);
BEGIN
  IF c[c[b + 23]::int] = 0 THEN
    RETURN greatest(trigger, zone_first(c[b + 2]::int, cron_last_where(c, b, 'bare', '{}', t, trigger + segment[3], latest + 1) + 1) - 1);
  END IF;
  RETURN coalesce(cron_last_where(c, b, 'useless', segment, t, trigger, least(segment[2], latest + 1 - segment[3])), trigger);
END $$;

-- The greatest number from low to below high with a property that holds up to some number and not beyond. For 'useless' numbers are instants
-- that lead no further than t, for 'bare' such walls; else walls whose result, by way of early or late, is before t.
CREATE OR REPLACE FUNCTION cron_last_where(c bigint[], b int, property text, segment bigint[], t bigint, low bigint, high bigint) RETURNS bigint
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  step bigint := 1;
  good bigint := high - 1;
  bad bigint := high;
BEGIN
  IF low >= high THEN RETURN NULL; END IF;
  WHILE NOT cron_holds(c, b, property, segment, t, good) LOOP
    IF good = low THEN RETURN NULL; END IF;
    step := step * 2;
    bad := good;
    good := greatest(high - step, low);
  END LOOP;
  WHILE bad - good > 1 LOOP
    step := (good + bad) / 2;                            -- rounded either way it lies between the two
    IF cron_holds(c, b, property, segment, t, step) THEN good := step; ELSE bad := step; END IF;
  END LOOP;
  RETURN good;
END $$;

CREATE OR REPLACE FUNCTION cron_holds(c bigint[], b int, property text, segment bigint[], t bigint, x bigint) RETURNS boolean
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN CASE property WHEN 'useless' THEN cron_result(c, b, x, t) <= t
    WHEN 'bare' THEN cron_pass_from(c[b + 2]::int, t + 1, cron_apply(c, c[b + 23]::int, x)) <= t
    ELSE cron_mapped(c, b, property, segment, x) < t END;
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
  latest bigint := least(cron_latest(c, b, t), 253402473599);
  segment bigint[] := CASE WHEN latest >= -62135769600 THEN zone_segment(c[b + 2]::int, zone_first(c[b + 2]::int, latest) + 172800) END;
  early bigint;
  late bigint;
  best bigint;
BEGIN
  WHILE segment IS NOT NULL LOOP
    late := cron_last_trigger(c, b, 'late', segment, t, latest);
    early := CASE WHEN c[c[b + 23]::int] = 1 THEN late ELSE cron_last_trigger(c, b, 'early', segment, t, latest) END;
    best := greatest(best, cron_mapped(c, b, 'late', segment, late));
    IF c[c[b + 23]::int] = 0 THEN best := greatest(best, cron_mapped(c, b, 'early', segment, early)); END IF;
    EXIT WHEN early >= segment[4] AND late >= segment[4];
    segment := cron_segment_before(c, b, segment);
  END LOOP;
  RETURN best;
END $$;

-- The wall time of the last trigger in a segment whose result is earlier than t. A modifier alone is triggered by any time, skipped ones included.
CREATE OR REPLACE FUNCTION cron_last_trigger(c bigint[], b int, mapping text, segment bigint[], t bigint, latest bigint) RETURNS bigint
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  bare boolean := c[b + 1] = 3;
  low bigint := greatest(segment[1], -62135596800) + segment[3];
  high bigint := least(least(segment[2], 253402300800) + segment[3], latest + 1);
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

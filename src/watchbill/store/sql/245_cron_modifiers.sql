-- E and S modifiers. The instants that a part names without its modifier are its triggers; the
-- modifier turns each into a result, the end or start of a period counted from the trigger.
-- src/watchbill/cron/modifiers.py explains the rules.
--
-- The modifier of the part at b stands in c from m = _part_modifier(c, b) on: 1 if to the end, how
-- many steps, then count and unit of each. Units are 1 second, 2 minute, 3 hour, 4 day, 5 week,
-- 6 month, 7 quarter, 8 year.

-- Applies a modifier to the wall time of a trigger: returns the wall time of its result.
CREATE OR REPLACE FUNCTION _cron_apply_modifier(c bigint[], m int, wall bigint)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  to_end bigint := c[m];
  unit bigint;
  size bigint;
  count bigint;
BEGIN
  FOR step IN m + 2 .. m + 2 * c[m + 1]::int BY 2 LOOP
    -- An end is one second before the start of the next period.
    count := c[step] + to_end;
    unit := c[step + 1];
    size := _unit_size(unit);
    wall := CASE
      -- 259200: weeks begin on Monday, and 1970-01-01 was a Thursday.
      WHEN unit < 6 THEN wall - _modulo(wall + 259200, size) + count * size
      ELSE _month_start_wall((_cron_month_number(wall) / size + count) * size)
    END - to_end;
  END LOOP;
  RETURN wall;
END $$;

-- The last wall time whose result is not later than `wall`: undoes the steps of the modifier from
-- the last one on. Wall times before the year -300 become the start of -300, because no result of
-- theirs is in the years 1 to 9999.
CREATE OR REPLACE FUNCTION _cron_undo_modifier(c bigint[], m int, wall bigint)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  to_end bigint := c[m];
  unit bigint;
  size bigint;
  count bigint;
  month bigint;
BEGIN
  FOR step IN REVERSE m + 2 * c[m + 1]::int .. m + 2 BY 2 LOOP
    count := c[step] + to_end - 1;
    unit := c[step + 1];
    size := _unit_size(unit);
    wall := wall + to_end;
    IF unit < 6 THEN
      wall := wall - _modulo(wall + 259200, size) - count * size - 1;
    ELSE
      month := _cron_month_number(wall);
      month := month - _modulo(month, size) - count * size;
      wall := _month_start_wall(greatest(month, -3600)) - 1;
    END IF;
    IF wall < -71634326400 THEN RETURN -71634326400; END IF;
  END LOOP;
  RETURN wall;
END $$;

-- The wall time `count` units later. A day that the month does not have becomes its last day.
CREATE OR REPLACE FUNCTION _cron_add_units(unit bigint, wall bigint, count bigint)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  month bigint := _cron_month_number(wall);
  target bigint := month + count * _unit_size(unit);
BEGIN
  IF unit < 6 THEN RETURN wall + count * _unit_size(unit); END IF;
  RETURN least(
    _month_start_wall(target) + wall - _month_start_wall(month),
    _month_start_wall(target + 1) - 86400 + _modulo(wall, 86400));
END $$;

CREATE OR REPLACE FUNCTION _cron_largest_unit(c bigint[], m int)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  unit bigint := 1;
BEGIN
  FOR step IN m + 2 .. m + 2 * c[m + 1]::int BY 2 LOOP
    unit := greatest(unit, c[step + 1]);
  END LOOP;
  RETURN unit;
END $$;

-- The seconds of a unit up to the week, the months of a longer one.
CREATE OR REPLACE FUNCTION _unit_size(unit bigint)
RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN ('{1,60,3600,86400,604800,1,3,12}'::bigint[])[unit];

-- The month of a wall time, counted from January of year 0. Calculates from 400 years earlier, as
-- the next function does, to avoid negative numbers.
CREATE OR REPLACE FUNCTION _cron_month_number(wall bigint)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  -- Since March of the year -400.
  day bigint := (wall + 74784816000) / 86400;
  year bigint := day % 146097;
BEGIN
  year := day / 146097 * 400 + (year - year / 1460 + year / 36524 - year / 146096) / 365;
  RETURN year * 12
    + (5 * (day - (365 * year + year / 4 - year / 100 + year / 400)) + 2) / 153 - 4798;
END $$;

CREATE OR REPLACE FUNCTION _month_start_wall(number bigint)
RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN _month_start(number + 4798) * 86400 - 74784816000;

-- The first instant, not before t, at which the clock shows a wall time, else
-- the last one before t. A clock that was put back shows some wall times in two passes.
CREATE OR REPLACE FUNCTION _cron_find_pass(zone int, t bigint, wall bigint)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  first bigint := _first_instant(zone, wall);
BEGIN
  RETURN CASE WHEN first >= t THEN first ELSE coalesce(_second_instant(zone, wall), first) END;
END $$;

-- The next result later than t, with its trigger: {trigger, result}; NULL if there is none.
CREATE OR REPLACE FUNCTION _cron_next_with_trigger(c bigint[], b int, t bigint)
RETURNS bigint[]
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  trigger bigint;
  result bigint;
  latest bigint;
BEGIN
  IF _part_is_modifier_alone(c, b) THEN RETURN _cron_next_of_modifier_alone(c, b, t); END IF;
  trigger := _cron_next_trigger(c, b, t);
  WHILE trigger <= 253402300799 LOOP
    result := _cron_trigger_result(c, b, trigger, t);
    IF result > t THEN RETURN ARRAY[trigger, result]; END IF;
    latest := coalesce(latest, _cron_latest_trigger(c, b, t + 1));
    trigger := _cron_next_trigger(c, b, _cron_last_useless_instant(c, b, trigger, t, latest));
  END LOOP;
  RETURN NULL;
END $$;

-- _cron_next_with_trigger for a part that has only a modifier. The trigger is t itself; if its
-- result is not later than t, the period is counted from some periods later.
CREATE OR REPLACE FUNCTION _cron_next_of_modifier_alone(c bigint[], b int, t bigint)
RETURNS bigint[]
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  zone int := _part_zone(c, b);
  wall bigint := t + (_zone_segment(zone, t))[3];
  useless bigint
    := _cron_bisect_last(c, b, 'bare', '{}', t, wall, _cron_latest_trigger(c, b, t + 1) + 1);
  unit bigint := _cron_largest_unit(c, _part_modifier(c, b));
  later bigint := 0;
BEGIN
  WHILE _cron_add_units(unit, wall, later) <= useless LOOP later := later + 1; END LOOP;
  RETURN ARRAY[
    t,
    _cron_find_pass(
      zone,
      t + 1,
      _cron_apply_modifier(c, _part_modifier(c, b), _cron_add_units(unit, wall, later)))];
END $$;

-- The last wall time of a trigger whose result is earlier than t. Of two passes the first counts.
CREATE OR REPLACE FUNCTION _cron_latest_trigger(c bigint[], b int, t bigint)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  segment bigint[] := _zone_segment(_part_zone(c, b), t - 1);
BEGIN
  RETURN _cron_undo_modifier(
    c, _part_modifier(c, b), greatest(t - 1 + segment[3], segment[4] - 1));
END $$;

-- The result of a trigger. An end is not before its trigger; a start is taken in its second pass if
-- the first one is not after t.
CREATE OR REPLACE FUNCTION _cron_trigger_result(c bigint[], b int, trigger bigint, t bigint)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  zone int := _part_zone(c, b);
BEGIN
  RETURN _cron_find_pass(
    zone,
    CASE WHEN _part_has_end_modifier(c, b) THEN trigger ELSE t + 1 END,
    _cron_apply_modifier(c, _part_modifier(c, b), trigger + (_zone_segment(zone, trigger))[3]));
END $$;

-- An instant up to which all triggers, from this one on, have results that are not later than t.
CREATE OR REPLACE FUNCTION _cron_last_useless_instant(
  c bigint[], b int, trigger bigint, t bigint, latest bigint
)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  segment bigint[] := _zone_segment(_part_zone(c, b), trigger);
BEGIN
  IF NOT _part_has_end_modifier(c, b) THEN
    RETURN greatest(
      trigger,
      _first_instant(
        _part_zone(c, b),
        _cron_bisect_last(c, b, 'bare', '{}', t, trigger + segment[3], latest + 1) + 1) - 1);
  END IF;
  RETURN coalesce(
    _cron_bisect_last(
      c, b, 'useless', segment, t, trigger, least(segment[2], latest + 1 - segment[3])),
    trigger);
END $$;

-- The greatest number from low to below high for which a property holds, found by bisection: the
-- property holds up to some number and not beyond. See _cron_property_holds.
CREATE OR REPLACE FUNCTION _cron_bisect_last(
  c bigint[], b int, property text, segment bigint[], t bigint, low bigint, high bigint
)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  step bigint := 1;
  good bigint := high - 1;
  bad bigint := high;
BEGIN
  IF low >= high THEN RETURN NULL; END IF;
  WHILE NOT _cron_property_holds(c, b, property, segment, t, good) LOOP
    IF good = low THEN RETURN NULL; END IF;
    step := step * 2;
    bad := good;
    good := greatest(high - step, low);
  END LOOP;
  WHILE bad - good > 1 LOOP
    step := (good + bad) / 2;
    IF _cron_property_holds(c, b, property, segment, t, step) THEN
      good := step;
    ELSE
      bad := step;
    END IF;
  END LOOP;
  RETURN good;
END $$;

-- Properties of a number x. useless: the result of the trigger x is not later than t; bare: the
-- same for the wall time x; early and late: the result of the wall time x is before t, as
-- _cron_wall_result computes it.
CREATE OR REPLACE FUNCTION _cron_property_holds(
  c bigint[], b int, property text, segment bigint[], t bigint, x bigint
)
RETURNS boolean
LANGUAGE plpgsql STABLE STRICT AS $$
BEGIN
  RETURN CASE property
    WHEN 'useless' THEN _cron_trigger_result(c, b, x, t) <= t
    WHEN 'bare' THEN
      _cron_find_pass(
        _part_zone(c, b), t + 1, _cron_apply_modifier(c, _part_modifier(c, b), x)) <= t
    ELSE _cron_wall_result(c, b, property, segment, x) < t
  END;
END $$;

-- The result of a trigger, given by its wall time. early: in its first pass; late: in the first
-- pass that is not before the trigger.
CREATE OR REPLACE FUNCTION _cron_wall_result(
  c bigint[], b int, mapping text, segment bigint[], wall bigint
)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  zone int := _part_zone(c, b);
  result bigint := _cron_apply_modifier(c, _part_modifier(c, b), wall);
BEGIN
  RETURN CASE mapping
    WHEN 'early' THEN _first_instant(zone, result)
    ELSE _cron_find_pass(zone, wall - segment[3], result)
  END;
END $$;

-- The last result that is earlier than t. Where a clock is put back, a later trigger may have an
-- earlier result. So this searches segment by segment, backwards, until no earlier segment can have
-- a later result.
CREATE OR REPLACE FUNCTION _cron_prev_result(c bigint[], b int, t bigint)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  latest bigint := least(_cron_latest_trigger(c, b, t), 253402473599);
  segment bigint[] := CASE
    WHEN latest >= -62135769600 THEN
      _zone_segment(_part_zone(c, b), _first_instant(_part_zone(c, b), latest) + 172800)
  END;
  early bigint;
  late bigint;
  best bigint;
BEGIN
  WHILE segment IS NOT NULL LOOP
    late := _cron_last_trigger_before(c, b, 'late', segment, t, latest);
    early := CASE
      WHEN _part_has_end_modifier(c, b) THEN late
      ELSE _cron_last_trigger_before(c, b, 'early', segment, t, latest)
    END;
    best := greatest(best, _cron_wall_result(c, b, 'late', segment, late));
    IF NOT _part_has_end_modifier(c, b) THEN
      best := greatest(best, _cron_wall_result(c, b, 'early', segment, early));
    END IF;
    EXIT WHEN early >= segment[4] AND late >= segment[4];
    segment := _cron_prev_trigger_segment(c, b, segment);
  END LOOP;
  RETURN best;
END $$;

-- The wall time of the last trigger in a segment whose result is earlier than t. For a part that
-- has only a modifier every wall time is a trigger, also a skipped one.
CREATE OR REPLACE FUNCTION _cron_last_trigger_before(
  c bigint[], b int, mapping text, segment bigint[], t bigint, latest bigint
)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  bare boolean := _part_is_modifier_alone(c, b);
  low bigint := greatest(segment[1], -62135596800) + segment[3];
  high bigint := least(least(segment[2], 253402300800) + segment[3], latest + 1);
  wall bigint;
  trigger bigint;
BEGIN
  IF bare THEN low := least(low, greatest(segment[4], -62135596800 + segment[3])); END IF;
  wall := _cron_bisect_last(c, b, mapping, segment, t, low, high);
  IF bare OR wall IS NULL THEN RETURN wall; END IF;
  trigger := _cron_prev_trigger(c, b, wall - segment[3] + 1);
  RETURN CASE
    WHEN trigger >= greatest(segment[1], -62135596800) THEN trigger + segment[3]
  END;
END $$;

CREATE OR REPLACE FUNCTION _cron_prev_trigger_segment(c bigint[], b int, segment bigint[])
RETURNS bigint[]
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  trigger bigint;
BEGIN
  IF segment[1] <= -62135596800 THEN RETURN NULL; END IF;
  trigger := CASE
    WHEN _part_is_modifier_alone(c, b) THEN segment[1] - 1
    ELSE _cron_prev_trigger(c, b, segment[1])
  END;
  RETURN CASE
    WHEN trigger >= -62135596800 OR _part_is_modifier_alone(c, b)
      THEN _zone_segment(_part_zone(c, b), trigger)
  END;
END $$;

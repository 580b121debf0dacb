-- Applies E and S modifiers. The instants that a part names without its modifier are its triggers.
-- The modifier turns each trigger into a result: the end or the start of a period that is counted
-- from the trigger. src/watchbill/cron/modifiers.py explains the rules.
--
-- The modifier of the part at b begins in c at m = _cron_part_modifier_index(c, b). Its numbers are
-- 1 for E or 0 for S, how many steps it has, and then the count and the unit of each step. Units
-- are 1 second, 2 minute, 3 hour, 4 day, 5 week, 6 month, 7 quarter, 8 year.

-- Returns the wall time to which a modifier moves the wall time of a trigger.
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
    -- The end of a period is one second before the start of the next period.
    count := c[step] + to_end;
    unit := c[step + 1];
    size := _cron_unit_length(unit);
    wall := CASE
      -- Weeks begin on Monday. 1970-01-01 was a Thursday, 259200 seconds after a Monday.
      WHEN unit < 6 THEN wall - _modulo(wall + 259200, size) + count * size
      ELSE _find_month_start_wall_time((_cron_find_month_number(wall) / size + count) * size)
    END - to_end;
  END LOOP;
  RETURN wall;
END $$;

-- Returns the last wall time from which the modifier leads to a result not later than `wall`.
-- Undoes the steps of the modifier, the last one first. Wall times before the year -300 become the
-- start of the year -300, because their results are outside the years 1 to 9999.
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
    size := _cron_unit_length(unit);
    wall := wall + to_end;
    IF unit < 6 THEN
      wall := wall - _modulo(wall + 259200, size) - count * size - 1;
    ELSE
      month := _cron_find_month_number(wall);
      month := month - _modulo(month, size) - count * size;
      wall := _find_month_start_wall_time(greatest(month, -3600)) - 1;
    END IF;
    IF wall < -71634326400 THEN RETURN -71634326400; END IF;
  END LOOP;
  RETURN wall;
END $$;

-- Returns the wall time `count` units later. If the month has no such day, returns the last day of
-- the month.
CREATE OR REPLACE FUNCTION _cron_add_units(unit bigint, wall bigint, count bigint)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  month bigint := _cron_find_month_number(wall);
  target bigint := month + count * _cron_unit_length(unit);
BEGIN
  IF unit < 6 THEN RETURN wall + count * _cron_unit_length(unit); END IF;
  RETURN least(
    _find_month_start_wall_time(target) + wall - _find_month_start_wall_time(month),
    _find_month_start_wall_time(target + 1) - 86400 + _modulo(wall, 86400));
END $$;

CREATE OR REPLACE FUNCTION _cron_find_largest_unit(c bigint[], m int)
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

-- Returns the length of a unit: in seconds up to the week, in months for longer units.
CREATE OR REPLACE FUNCTION _cron_unit_length(unit bigint)
RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN ('{1,60,3600,86400,604800,1,3,12}'::bigint[])[unit];

-- Returns the number of the month of a wall time, counted from January of year 0. Its years begin
-- on 1 March, so that the leap day is the last day of its year, and the first one is -400, to avoid
-- negative numbers: it begins with month -4798. 400 years have 146097 days, 100 have 36524 and four
-- have 1461. From March on, each five months have 153 days.
CREATE OR REPLACE FUNCTION _cron_find_month_number(wall bigint)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  day bigint := (wall + 74784816000) / 86400;
  rest bigint := day % 146097; -- days of the last, incomplete 400 years
  -- Without their leap days, all years have 365 days.
  year bigint := day / 146097 * 400 + (rest - rest / 1460 + rest / 36524 - rest / 146096) / 365;
  day_of_year bigint := day - (365 * year + year / 4 - year / 100 + year / 400);
BEGIN
  RETURN year * 12 + (5 * day_of_year + 2) / 153 - 4798;
END $$;

CREATE OR REPLACE FUNCTION _find_month_start_wall_time(number bigint)
RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN _find_month_start(number + 4798) * 86400 - 74784816000;

-- Returns the instant at which the zone's clock shows a wall time. A clock that was put back shows
-- some wall times twice: then returns the first of the two instants that is not before t, else the
-- second.
CREATE OR REPLACE FUNCTION _cron_find_pass(zone int, t bigint, wall bigint)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  first bigint := _find_wall_time_instant(zone, wall);
BEGIN
  RETURN CASE
    WHEN first >= t THEN first
    ELSE coalesce(_find_second_wall_time_instant(zone, wall), first)
  END;
END $$;

-- Returns the next instant later than t to which the modifier moves a trigger, together with that
-- trigger: {trigger, result}; NULL if there is none.
CREATE OR REPLACE FUNCTION _cron_find_next_modifier_result(c bigint[], b int, t bigint)
RETURNS bigint[]
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  trigger bigint;
  result bigint;
  latest bigint;
BEGIN
  IF _cron_part_is_modifier_alone(c, b) THEN
    RETURN _cron_find_next_of_modifier_alone(c, b, t);
  END IF;
  trigger := _cron_find_next_trigger(c, b, t);
  WHILE trigger <= 253402300799 LOOP
    result := _cron_find_modifier_result(c, b, trigger, t);
    IF result > t THEN RETURN ARRAY[trigger, result]; END IF;
    latest := coalesce(latest, _cron_find_latest_trigger(c, b, t + 1));
    trigger := _cron_find_next_trigger(
      c, b, _cron_find_last_useless_instant(c, b, trigger, t, latest));
  END LOOP;
  RETURN NULL;
END $$;

-- Does what _cron_find_next_modifier_result() does, for a part that has only a modifier. The
-- trigger is t itself. If the result for t is not later than t, counts the period from a later wall
-- time.
CREATE OR REPLACE FUNCTION _cron_find_next_of_modifier_alone(c bigint[], b int, t bigint)
RETURNS bigint[]
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  zone int := _cron_part_zone(c, b);
  wall bigint := t + (_find_zone_segment(zone, t))[3];
  useless bigint := _cron_bisect_to_last_match(
    c, b, 'bare', '{}', t, wall, _cron_find_latest_trigger(c, b, t + 1) + 1);
  unit bigint := _cron_find_largest_unit(c, _cron_part_modifier_index(c, b));
  later bigint := 0;
BEGIN
  WHILE _cron_add_units(unit, wall, later) <= useless LOOP later := later + 1; END LOOP;
  RETURN ARRAY[
    t,
    _cron_find_pass(
      zone,
      t + 1,
      _cron_apply_modifier(
        c, _cron_part_modifier_index(c, b), _cron_add_units(unit, wall, later)))];
END $$;

-- Returns the latest wall time of a trigger that the modifier can move to an instant earlier than
-- t. Where a clock is put back, the first of the two passes of a wall time counts.
CREATE OR REPLACE FUNCTION _cron_find_latest_trigger(c bigint[], b int, t bigint)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  segment bigint[] := _find_zone_segment(_cron_part_zone(c, b), t - 1);
BEGIN
  RETURN _cron_undo_modifier(
    c, _cron_part_modifier_index(c, b), greatest(t - 1 + segment[3], segment[4] - 1));
END $$;

-- Returns the instant to which the modifier moves a trigger. If the clock shows the new wall time
-- twice: for E takes the first such instant that is not before the trigger, for S the first that is
-- later than t, else the second.
CREATE OR REPLACE FUNCTION _cron_find_modifier_result(c bigint[], b int, trigger bigint, t bigint)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  zone int := _cron_part_zone(c, b);
BEGIN
  RETURN _cron_find_pass(
    zone,
    CASE WHEN _cron_part_has_end_modifier(c, b) THEN trigger ELSE t + 1 END,
    _cron_apply_modifier(
      c, _cron_part_modifier_index(c, b), trigger + (_find_zone_segment(zone, trigger))[3]));
END $$;

-- Returns an instant up to which the modifier moves every trigger, from the given one on, to an
-- instant not later than t. So the search can continue after that instant.
CREATE OR REPLACE FUNCTION _cron_find_last_useless_instant(
  c bigint[], b int, trigger bigint, t bigint, latest bigint
)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  segment bigint[] := _find_zone_segment(_cron_part_zone(c, b), trigger);
BEGIN
  IF NOT _cron_part_has_end_modifier(c, b) THEN
    RETURN greatest(
      trigger,
      _find_wall_time_instant(
        _cron_part_zone(c, b),
        _cron_bisect_to_last_match(
          c, b, 'bare', '{}', t, trigger + segment[3], latest + 1) + 1) - 1);
  END IF;
  RETURN coalesce(
    _cron_bisect_to_last_match(
      c, b, 'useless', segment, t, trigger, least(segment[2], latest + 1 - segment[3])),
    trigger);
END $$;

-- Returns, by bisection, the greatest number from `low` to below `high` for which a property holds.
-- The property must hold up to some number and not beyond. _cron_check_search_property() lists the
-- properties.
CREATE OR REPLACE FUNCTION _cron_bisect_to_last_match(
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
  WHILE NOT _cron_check_search_property(c, b, property, segment, t, good) LOOP
    IF good = low THEN RETURN NULL; END IF;
    step := step * 2;
    bad := good;
    good := greatest(high - step, low);
  END LOOP;
  WHILE bad - good > 1 LOOP
    step := (good + bad) / 2;
    IF _cron_check_search_property(c, b, property, segment, t, step) THEN
      good := step;
    ELSE
      bad := step;
    END IF;
  END LOOP;
  RETURN good;
END $$;

-- Says whether a property holds for the number x. `useless`: the modifier moves the trigger x to an
-- instant not later than t. `bare`: the same for the wall time x. `early` and `late`:
-- _cron_find_wall_time_modifier_result() moves the wall time x to an instant before t.
CREATE OR REPLACE FUNCTION _cron_check_search_property(
  c bigint[], b int, property text, segment bigint[], t bigint, x bigint
)
RETURNS boolean
LANGUAGE plpgsql STABLE STRICT AS $$
BEGIN
  RETURN CASE property
    WHEN 'useless' THEN _cron_find_modifier_result(c, b, x, t) <= t
    WHEN 'bare' THEN
      _cron_find_pass(
        _cron_part_zone(c, b),
        t + 1,
        _cron_apply_modifier(c, _cron_part_modifier_index(c, b), x)) <= t
    ELSE _cron_find_wall_time_modifier_result(c, b, property, segment, x) < t
  END;
END $$;

-- Returns the instant to which the modifier moves a trigger that is given by its wall time. If the
-- clock shows the new wall time twice: with `early` takes the first instant, with `late` the first
-- instant that is not before the trigger.
CREATE OR REPLACE FUNCTION _cron_find_wall_time_modifier_result(
  c bigint[], b int, mapping text, segment bigint[], wall bigint
)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  zone int := _cron_part_zone(c, b);
  result bigint := _cron_apply_modifier(c, _cron_part_modifier_index(c, b), wall);
BEGIN
  RETURN CASE mapping
    WHEN 'early' THEN _find_wall_time_instant(zone, result)
    ELSE _cron_find_pass(zone, wall - segment[3], result)
  END;
END $$;

-- Returns the last instant earlier than t to which the modifier moves a trigger. Where a clock is
-- put back, a later trigger may be moved to an earlier instant. So this searches segment by
-- segment, backwards, until no earlier segment can lead to a later instant.
CREATE OR REPLACE FUNCTION _cron_find_prev_modifier_result(c bigint[], b int, t bigint)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  latest bigint := least(_cron_find_latest_trigger(c, b, t), 253402473599);
  segment bigint[] := CASE
    WHEN latest >= -62135769600 THEN
      _find_zone_segment(
        _cron_part_zone(c, b),
        _find_wall_time_instant(_cron_part_zone(c, b), latest) + 172800)
  END;
  early bigint;
  late bigint;
  best bigint;
BEGIN
  WHILE segment IS NOT NULL LOOP
    late := _cron_find_last_trigger_in_segment(c, b, 'late', segment, t, latest);
    early := CASE
      WHEN _cron_part_has_end_modifier(c, b) THEN late
      ELSE _cron_find_last_trigger_in_segment(c, b, 'early', segment, t, latest)
    END;
    best := greatest(best, _cron_find_wall_time_modifier_result(c, b, 'late', segment, late));
    IF NOT _cron_part_has_end_modifier(c, b) THEN
      best := greatest(best, _cron_find_wall_time_modifier_result(c, b, 'early', segment, early));
    END IF;
    EXIT WHEN early >= segment[4] AND late >= segment[4];
    segment := _cron_find_prev_trigger_segment(c, b, segment);
  END LOOP;
  RETURN best;
END $$;

-- Returns the wall time of the last trigger in a segment that the modifier moves to an instant
-- earlier than t. For a part that has only a modifier every wall time is a trigger, also one that
-- the clock skips.
CREATE OR REPLACE FUNCTION _cron_find_last_trigger_in_segment(
  c bigint[], b int, mapping text, segment bigint[], t bigint, latest bigint
)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  bare boolean := _cron_part_is_modifier_alone(c, b);
  low bigint := greatest(segment[1], -62135596800) + segment[3];
  high bigint := least(least(segment[2], 253402300800) + segment[3], latest + 1);
  wall bigint;
  trigger bigint;
BEGIN
  IF bare THEN low := least(low, greatest(segment[4], -62135596800 + segment[3])); END IF;
  wall := _cron_bisect_to_last_match(c, b, mapping, segment, t, low, high);
  IF bare OR wall IS NULL THEN RETURN wall; END IF;
  trigger := _cron_find_prev_trigger(c, b, wall - segment[3] + 1);
  RETURN CASE
    WHEN trigger >= greatest(segment[1], -62135596800) THEN trigger + segment[3]
  END;
END $$;

-- Returns the segment that contains the last trigger before the given segment.
CREATE OR REPLACE FUNCTION _cron_find_prev_trigger_segment(c bigint[], b int, segment bigint[])
RETURNS bigint[]
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  trigger bigint;
BEGIN
  IF segment[1] <= -62135596800 THEN RETURN NULL; END IF;
  trigger := CASE
    WHEN _cron_part_is_modifier_alone(c, b) THEN segment[1] - 1
    ELSE _cron_find_prev_trigger(c, b, segment[1])
  END;
  RETURN CASE
    WHEN trigger >= -62135596800 OR _cron_part_is_modifier_alone(c, b)
      THEN _find_zone_segment(_cron_part_zone(c, b), trigger)
  END;
END $$;

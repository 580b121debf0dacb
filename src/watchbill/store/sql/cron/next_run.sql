-- Finds the first instant of a schedule that is later than a given one.
--
-- Times are whole seconds since 1970. A wall time (`wall`) is what the clock of a zone shows,
-- counted as if it were UTC. `reading` says how wall times become instants:
--    0  by the clock: each wall time once, a skipped one at the clock change
--    1  by elapsed time: skipped wall times have no instant, repeated ones have two
--   -1  not at all: `t` and the result are wall times
-- Days are counted from 0000-03-01 (cron/cron_days.sql). cron/cron_layout.sql explains the large
-- numbers.

-- Returns the first instant later than t: of the part of the pattern that begins at c[b], or of the
-- whole pattern c if b is NULL.
--
-- This is one function with large expressions, because it runs for every slot, and calls are slow.
-- It is not STRICT, because PostgreSQL would not inline the functions of the schema jcron then.
CREATE OR REPLACE FUNCTION _find_next_instant(c bigint[], b int, t bigint, reading int)
RETURNS bigint
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
  -- A result later than this may be past the year 9999 in one of the zones, and must be checked.
  latest bigint := 4611686018427387904;
  place int;
  -- The search goes on in the segment of the zone that contains this instant.
  resume bigint := t;
  origin bigint;
  segment bigint[];
  stop bigint := 4611686018427387904;
  shift bigint := 0;
  high bigint;
  wall bigint;
  -- The second of the day: at first of the given time, later of the result; -1 stands for the first
  -- time of the day that the schedule names.
  second int;
  -- The number of a day, counted from 0: at first since 0000-03-01, then within its year, then
  -- within its month.
  day int;
  -- The first day of the month, counted since 0000-03-01.
  first int;
  year int;
  month int;
  length int;
  days bigint;
  rest bigint;
  tries int;
BEGIN
  IF c IS NULL OR t IS NULL THEN RETURN NULL; END IF;
  IF b IS NULL THEN
    IF c[3] = 0 OR t < -62135510400 OR t > 253402214399 THEN
      RETURN _cron_find_next_in_bounds(c, t);
    END IF;
    b := 0;
    reading := _cron_part_reading(c, b);
    latest := 253402214400;
  END IF;
  place := _cron_part_zone(c, b);
  IF place < 0 AND reading >= 0 THEN shift := -100000 - place; END IF;
  LOOP
    IF place > 0 AND reading >= 0 THEN
      segment := coalesce(
        _find_near_zone_segment(place, resume), _read_zone_segment(place, resume));
      stop := segment[2];
      shift := segment[3];
      high := segment[4];
    END IF;

    -- Splits the given wall time, in seconds since 0000-03-01, into year, month (0 is March), day
    -- and second.
    wall := 62162035200
      + CASE WHEN reading = 0 THEN greatest(t + shift, high - 1) ELSE t + shift END;
    second := (wall % 86400)::int;
    day := (wall / 86400)::int;
    year := (4 * day + 3) / 146097 * 100 + (((4 * day + 3) % 146097) | 3) / 1461;
    first := day;
    day := (((4 * day + 3) % 146097) | 3) % 1461 / 4;
    month := (5 * day + 2) / 153;
    first := first - day + (153 * month + 2) / 5;
    day := day - (153 * month + 2) / 5;

    -- Finds the day: the given day if the schedule has a later time on it, else the next day that
    -- the schedule names, in this or a later month.
    tries := 0;
    LOOP
      IF (_cron_part_months(c, b) >> month) & 1 = 1
        AND (_cron_part_years_index(c, b) = 0 OR _cron_part_has_year(c, b, year + month / 10))
      THEN
        length := _find_month_length(year, month, first);
        days := CASE
          WHEN _cron_part_has_special_days(c, b) THEN _cron_find_month_days(c, b, first, length)
          ELSE _find_plain_month_days(c, b, first, length)
        END;
        IF tries = 0 THEN
          EXIT WHEN second < _cron_part_last_time(c, b) AND (days >> day) & 1 = 1;
          days := (days >> day + 1) << day + 1;
        END IF;
        IF days <> 0 THEN
          day := _find_lowest_bit(days);
          second := -1;
          EXIT;
        END IF;
      END IF;
      rest := _cron_part_months(c, b) >> month + 1;
      IF rest <> 0 THEN
        month := month + 1 + _find_lowest_bit(rest);
      ELSE
        year := year + 1;
        month := _find_lowest_bit(_cron_part_months(c, b));
      END IF;
      tries := tries + 1;
      IF tries > 12 THEN
        rest := _cron_find_month_with_day(c, b, year * 12 + month, 1);
        days := 0;
        EXIT WHEN rest IS NULL;
        year := (rest / 12)::int;
        month := (rest % 12)::int;
      END IF;
      first := 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5;
    END LOOP;

    IF days = 0 THEN
      wall := NULL;
    ELSE
      -- Finds the time on that day: in the same minute, else in the same hour, else in a later
      -- hour.
      IF second < 0 THEN
        second := _cron_part_first_time(c, b);
      ELSE
        rest := CASE
          WHEN (_cron_part_hours(c, b) >> second / 3600)
            & (_cron_part_minutes(c, b) >> second / 60 % 60) & 1 = 1
            THEN _cron_part_seconds(c, b) >> second % 60 + 1
          ELSE 0
        END;
        IF rest <> 0 THEN
          second := second + 1 + _find_lowest_bit(rest);
        ELSE
          rest := CASE
            WHEN (_cron_part_hours(c, b) >> second / 3600) & 1 = 1
              THEN _cron_part_minutes(c, b) >> second / 60 % 60 + 1
            ELSE 0
          END;
          IF rest <> 0 THEN
            second := (second / 60 + 1 + _find_lowest_bit(rest)) * 60
              + _cron_part_first_time(c, b) % 60;
          ELSE
            rest := _cron_part_hours(c, b) >> second / 3600 + 1;
            second := (second / 3600 + 1 + _find_lowest_bit(rest)) * 3600
              + _cron_part_first_time(c, b) % 3600;
          END IF;
        END IF;
      END IF;

      wall := (first + day)::bigint * 86400 + second - 62162035200;
      IF wall - shift < stop AND wall - shift < latest THEN RETURN wall - shift; END IF;
      IF wall - shift < stop OR reading = 0 THEN
        wall := CASE
          WHEN wall - shift < stop THEN wall - shift
          ELSE _find_wall_time_instant(place, wall)
        END;
        IF wall < latest OR wall <= (_cron_find_time_bounds(c))[2] THEN RETURN wall; END IF;
        RETURN NULL;
      END IF;
    END IF;

    -- The schedule follows elapsed time, and this segment has no further instant. The search
    -- continues in the segment that contains the next possible instant, for at most 400 years.
    IF stop - t <= 172800 THEN
      resume := stop;
    ELSIF wall IS NULL
      OR _cron_part_years_index(c, b) = 0
        AND wall > greatest(coalesce(origin, t), 4102444800) + 12622780800
    THEN
      RETURN NULL;
    ELSE
      resume := _find_wall_time_instant(place, wall);
    END IF;
    origin := coalesce(origin, t);
    t := resume - 1;
  END LOOP;
END $$;

-- Returns the next trigger of the part at b: the next instant that the part would have without its
-- modifier. Reading 2 means by the clock, but without skipped wall times; reading 3 means by the
-- clock and also by elapsed time.
CREATE OR REPLACE FUNCTION _cron_find_next_trigger(c bigint[], b int, t bigint)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  give_up bigint := greatest(t, 4102444800) + 12622780800;
  found bigint;
BEGIN
  IF _cron_part_is_reboot(c, b) THEN RETURN NULL; END IF;
  IF _cron_part_is_every(c, b) THEN RETURN _cron_find_next_of_interval(c, b, t); END IF;
  CASE _cron_part_reading(c, b)
    WHEN 3 THEN
      RETURN least(_find_next_instant(c, b, t, 0), _find_next_instant(c, b, t, 1));
    WHEN 2 THEN
      found := _find_next_instant(c, b, t, 0);
      WHILE NOT _cron_matches_clock(c, b, found) LOOP
        IF _cron_part_years_index(c, b) = 0 AND found > give_up THEN RETURN NULL; END IF;
        found := _find_next_instant(c, b, found, 0);
      END LOOP;
      RETURN found;
    ELSE
      RETURN _find_next_instant(c, b, t, _cron_part_reading(c, b));
  END CASE;
END $$;

-- Says whether the clock of the part's zone shows, at the instant t, a wall time that the part
-- names: whether this wall time is the first one after the second before it.
CREATE OR REPLACE FUNCTION _cron_matches_clock(c bigint[], b int, t bigint)
RETURNS boolean
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  wall bigint := t + (_find_zone_segment(_cron_part_zone(c, b), t))[3];
BEGIN
  RETURN _find_next_instant(c, b, wall - 1, -1) IS NOT DISTINCT FROM wall;
END $$;

-- Returns the next instant of @every: the anchor plus a multiple of the period. If the part has
-- WOY:, the instant must lie in one of these weeks.
CREATE OR REPLACE FUNCTION _cron_find_next_of_interval(c bigint[], b int, t bigint)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  period bigint := c[b + 24];
  anchor bigint := c[b + 25];
  at bigint := t + period - _modulo(t - anchor, period);
  shared bigint;
BEGIN
  IF _cron_part_weeks(c, b) = 0 THEN RETURN at; END IF;
  WHILE at <= 253402300799 LOOP
    shared := _find_next_instant(c, b, at - 1, 1);
    IF shared IS NULL OR shared = at THEN RETURN shared; END IF;
    at := shared - 1 + period - _modulo(shared - 1 - anchor, period);
  END LOOP;
  RETURN NULL;
END $$;

-- Returns the next instant of a pattern: the earliest that one of its parts (`A|B`) has.
CREATE OR REPLACE FUNCTION _cron_find_next_of_any_part(c bigint[], t bigint)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  found bigint;
BEGIN
  FOR b IN 0 .. _cron_last_part_offset(c) BY 27 LOOP
    found := least(found, CASE
      WHEN _cron_part_modifier_index(c, b) = 0 THEN _cron_find_next_trigger(c, b, t)
      ELSE (_cron_find_next_modifier_result(c, b, t))[2]
    END);
  END LOOP;
  RETURN found;
END $$;

-- Returns the next instant of a schedule; NULL if it is outside the years 1 to 9999 in one of the
-- schedule's zones.
CREATE OR REPLACE FUNCTION _cron_find_next_in_bounds(c bigint[], t bigint)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  bounds bigint[];
  found bigint;
BEGIN
  IF t BETWEEN -62135510400 AND 253402214399 THEN
    found := _cron_find_next_of_any_part(c, t);
    IF found < 253402214400 THEN RETURN found; END IF;
    bounds := _cron_find_time_bounds(c);
  ELSE
    IF t NOT BETWEEN -62135596800 AND 253402300799 THEN
      PERFORM _cron_to_seconds(to_timestamp(t));
    END IF;
    bounds := _cron_find_time_bounds(c);
    found := _cron_find_next_of_any_part(c, greatest(t, bounds[1] - 1));
  END IF;
  RETURN CASE WHEN found <= bounds[2] THEN found END;
END $$;

-- Returns the first instant of a schedule that is later than `after`; NULL if there is none. For an
-- infinite `after` it passes a number past the year 9999, for which _find_next_instant() raises an
-- error.
CREATE OR REPLACE FUNCTION next_run(cron cron, after timestamptz)
RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
RETURN to_timestamp(_find_next_instant(
  cron,
  NULL,
  CASE isfinite(after)
    WHEN false THEN 253402300800
    ELSE floor(extract(epoch FROM after))::bigint
  END,
  NULL));

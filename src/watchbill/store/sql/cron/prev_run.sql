-- Finds the last instant of a schedule that is earlier than a given one. This file mirrors
-- cron/next_run.sql, which explains wall times and readings.

-- Returns the last instant of the part at b that is earlier than t. It is one large function,
-- because it runs for every slot and calls are slow.
CREATE OR REPLACE FUNCTION _cron_find_prev_instant(c bigint[], b int, t bigint, reading int)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  place int := _cron_part_zone(c, b);
  origin bigint := t;
  segment bigint[];
  start bigint := -4611686018427387904;
  shift bigint := 0;
  high bigint;
  wall bigint;
  second int;
  day int;
  first int;
  year int;
  month int;
  length int;
  days bigint;
  rest bigint;
  tries int;
BEGIN
  IF place < 0 AND reading >= 0 THEN shift := -100000 - place; END IF;
  LOOP
    IF place > 0 AND reading >= 0 THEN
      segment := _find_zone_segment(place, t - 1);
      start := segment[1];
      shift := segment[3];
      high := segment[4];
    END IF;

    -- Splits the given wall time, in seconds since 0000-03-01, into year, month (0 is March), day
    -- and second.
    wall := 62162035200
      + CASE WHEN reading = 0 THEN greatest(t + shift, high) ELSE t + shift END;
    second := (wall % 86400)::int;
    day := (wall / 86400)::int;
    year := (4 * day + 3) / 146097 * 100 + (((4 * day + 3) % 146097) | 3) / 1461;
    first := day;
    day := (((4 * day + 3) % 146097) | 3) % 1461 / 4;
    month := (5 * day + 2) / 153;
    first := first - day + (153 * month + 2) / 5;
    day := day - (153 * month + 2) / 5;

    -- Finds the day: the given day if the schedule has an earlier time on it, else the last day
    -- before it that the schedule names, in this or an earlier month.
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
          EXIT WHEN second > _cron_part_first_time(c, b) AND (days >> day) & 1 = 1;
          days := days & ((1::bigint << day) - 1);
        END IF;
        IF days <> 0 THEN
          day := _find_highest_bit(days);
          second := -1;
          EXIT;
        END IF;
      END IF;
      rest := _cron_part_months(c, b) & ((1::bigint << month) - 1);
      IF rest = 0 THEN
        year := year - 1;
        rest := _cron_part_months(c, b);
      END IF;
      month := _find_highest_bit(rest);
      tries := tries + 1;
      days := 0;
      EXIT WHEN year < 0;
      IF tries > 12 THEN
        rest := _cron_find_month_with_day(c, b, year * 12 + month, -1);
        EXIT WHEN rest IS NULL;
        year := (rest / 12)::int;
        month := (rest % 12)::int;
      END IF;
      first := 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5;
    END LOOP;

    IF days = 0 THEN
      wall := NULL;
    ELSE
      -- Finds the time on that day: in the same minute, else in the same hour, else in an earlier
      -- hour.
      IF second < 0 THEN
        second := _cron_part_last_time(c, b);
      ELSE
        second := second - 1;
        rest := CASE
          WHEN (_cron_part_hours(c, b) >> second / 3600)
            & (_cron_part_minutes(c, b) >> second / 60 % 60) & 1 = 1
            THEN _cron_part_seconds(c, b) & ((2::bigint << second % 60) - 1)
          ELSE 0
        END;
        IF rest <> 0 THEN
          second := second / 60 * 60 + _find_highest_bit(rest);
        ELSE
          rest := CASE
            WHEN (_cron_part_hours(c, b) >> second / 3600) & 1 = 1
              THEN _cron_part_minutes(c, b) & ((1::bigint << second / 60 % 60) - 1)
            ELSE 0
          END;
          IF rest <> 0 THEN
            second := second / 3600 * 3600 + _find_highest_bit(rest) * 60
              + _cron_part_last_time(c, b) % 60;
          ELSE
            rest := _cron_part_hours(c, b) & ((1::bigint << second / 3600) - 1);
            second := _find_highest_bit(rest) * 3600 + _cron_part_last_time(c, b) % 3600;
          END IF;
        END IF;
      END IF;

      wall := (first + day)::bigint * 86400 + second - 62162035200;
      IF reading = 0 AND place > 0 THEN RETURN _find_wall_time_instant(place, wall); END IF;
      IF wall - shift >= start THEN RETURN wall - shift; END IF;
    END IF;

    -- The schedule follows elapsed time, and this segment has no earlier instant. The search
    -- continues in an earlier segment that may contain the next possible instant, for at most 400
    -- years.
    IF t - start <= 172800 THEN
      t := start;
    ELSIF wall IS NULL THEN
      RETURN NULL;
    ELSE
      t := least(start, _find_wall_time_instant(place, wall) + 172800);
    END IF;
    IF _cron_part_years_index(c, b) = 0 AND t > 16725225600 AND origin - t > 12622780800 THEN
      t := t - ((t - 16725225600) / 12622780800 + 1) * 12622780800;
    END IF;
    IF t <= -62135683200 THEN RETURN NULL; END IF;
  END LOOP;
END $$;

-- Returns the last trigger of the part at b before t: the last instant that the part would have
-- without its modifier.
CREATE OR REPLACE FUNCTION _cron_find_prev_trigger(c bigint[], b int, t bigint)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  origin bigint := t;
  found bigint;
BEGIN
  IF _cron_part_is_reboot(c, b) THEN RETURN NULL; END IF;
  IF _cron_part_is_every(c, b) THEN RETURN _cron_find_prev_of_interval(c, b, t); END IF;
  CASE _cron_part_reading(c, b)
    WHEN 3 THEN
      RETURN greatest(_cron_find_prev_instant(c, b, t, 0), _cron_find_prev_instant(c, b, t, 1));
    WHEN 2 THEN
      found := _cron_find_prev_instant(c, b, t, 0);
      WHILE NOT _cron_matches_clock(c, b, found) LOOP
        IF _cron_part_years_index(c, b) = 0
          AND found > 16725225600
          AND origin - found > 12622780800
        THEN
          found := found - ((found - 16725225600) / 12622780800 + 1) * 12622780800;
        END IF;
        found := _cron_find_prev_instant(c, b, found, 0);
      END LOOP;
      RETURN found;
    ELSE
      RETURN _cron_find_prev_instant(c, b, t, _cron_part_reading(c, b));
  END CASE;
END $$;

-- Returns the last instant of @every before t. If the part has WOY:, the instant lies in one of
-- these weeks.
CREATE OR REPLACE FUNCTION _cron_find_prev_of_interval(c bigint[], b int, t bigint)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  period bigint := c[b + 24];
  anchor bigint := c[b + 25];
  at bigint := t - 1 - _modulo(t - 1 - anchor, period);
  shared bigint;
BEGIN
  IF _cron_part_weeks(c, b) = 0 THEN RETURN at; END IF;
  WHILE at >= -62135596800 LOOP
    shared := _cron_find_prev_instant(c, b, at + 1, 1);
    IF shared IS NULL OR shared = at THEN RETURN shared; END IF;
    at := shared - _modulo(shared - anchor, period);
  END LOOP;
  RETURN NULL;
END $$;

-- Returns the latest of the last instants of all parts before t.
CREATE OR REPLACE FUNCTION _cron_find_prev_of_all_parts(c bigint[], t bigint)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  found bigint;
BEGIN
  FOR b IN 0 .. _cron_last_part_offset(c) BY 27 LOOP
    found := greatest(found, CASE
      WHEN _cron_part_modifier_index(c, b) = 0 THEN _cron_find_prev_trigger(c, b, t)
      ELSE _cron_find_prev_modifier_result(c, b, t)
    END);
  END LOOP;
  RETURN found;
END $$;

-- Returns the last instant of a schedule that is earlier than `before`; NULL if there is none.
CREATE OR REPLACE FUNCTION prev_run(cron cron, before timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
DECLARE
  t bigint := _cron_round_up_to_seconds(before);
  at bigint;
BEGIN
  IF t >= 253402214400 THEN t := least(t, (_cron_find_time_bounds(cron))[2] + 1); END IF;
  at := _cron_find_prev_of_all_parts(cron, t);
  IF at < -62135510400 AND at < (_cron_find_time_bounds(cron))[1] THEN RETURN NULL; END IF;
  RETURN to_timestamp(at);
END $$;

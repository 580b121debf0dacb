-- after: cron_layout
-- Finds the days of a month that a schedule names, as a mask with bit 0 for the 1st.
--
-- Days are counted from 0000-03-01, a Wednesday, so that a leap day is the last day of its year:
-- month m of year y (March = 0) begins on day 365y + y/4 - y/100 + y/400 + (153m + 2)/5. Weekdays
-- count from Sunday = 0.

-- Returns the days that the day fields and WOY: name in a month. The month begins on day `first`
-- and has `length` days. The masks of special items have seven bits per week; this function rotates
-- each group of seven to the weekday on which the month begins or ends.
CREATE OR REPLACE FUNCTION _cron_find_month_days(c bigint[], b int, first bigint, length int)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  whole bigint := (1::bigint << length) - 1;
  -- f is the weekday on which this month begins, and g the weekday on which the next month begins.
  f int := (first + 3) % 7;
  g int := (f + length) % 7;
  last_days bigint := c[b + 16] >> 31 - length;
  last_workdays bigint := c[b + 17] >> 31 - length;
  workdays bigint := (last_workdays | c[b + 18]) & whole;
  nth_weekdays bigint := c[b + 19];
  nth_last_weekdays bigint := c[b + 20];
  row_weekdays bigint := c[b + 21];
  of_month bigint := _cron_part_month_days(c, b) | last_days;
  of_week bigint := (_cron_part_weekdays(c, b) >> f) | (row_weekdays >> (f + 6) % 7);
BEGIN
  IF workdays <> 0 THEN
    of_month := of_month | _cron_move_to_workdays(workdays, length, f);
  END IF;
  IF nth_weekdays <> 0 THEN of_week := of_week | _cron_rotate_week_bits(nth_weekdays, f); END IF;
  IF nth_last_weekdays <> 0 THEN
    of_week := of_week | (_cron_rotate_week_bits(nth_last_weekdays, g) >> 35 - length);
  END IF;
  IF _cron_part_weeks(c, b) <> 0 THEN
    whole := whole & _cron_find_days_of_weeks(_cron_part_weeks(c, b), first, length);
  END IF;
  IF _cron_part_takes_either_day(c, b) THEN RETURN (of_month | of_week) & whole; END IF;
  RETURN of_month & of_week & whole;
END $$;

-- Moves each day that is a Saturday or Sunday to the nearest working day of the same month.
CREATE OR REPLACE FUNCTION _cron_move_to_workdays(days bigint, length int, first_weekday int)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  saturdays bigint := days & ((34630287489 << 6) >> first_weekday);
  sundays bigint := days & (34630287489 >> first_weekday);
BEGIN
  RETURN (days & ~(saturdays | sundays))
    | (saturdays >> 1) | ((saturdays & 1) << 2)
    | ((sundays << 1) & ((1::bigint << length) - 1)) | ((sundays >> length - 1) << length - 3);
END $$;

-- Moves each weekday of a month n days back, from the first day of a week to its last. A month is
-- five groups of seven bits, one group per week. The factor 270549121 has the first bit of each
-- group: it repeats a mask of seven bits in all five groups.
CREATE OR REPLACE FUNCTION _cron_rotate_week_bits(weeks bigint, n int)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  stays bigint := 270549121 * (127 >> n)::bigint;
  wraps bigint := 270549121 * (127 - (127 >> n))::bigint;
BEGIN
  RETURN ((weeks >> n) & stays) | ((weeks << 7 - n) & wraps);
END $$;

-- Returns the days of a month that lie in the given ISO weeks (bit w for week w). A week belongs to
-- the year in which its Thursday lies.
CREATE OR REPLACE FUNCTION _cron_find_days_of_weeks(weeks bigint, first bigint, length int)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  monday bigint := first - (first + 2) % 7;
  year bigint := _cron_find_year_of_day(monday + 3);
  january bigint := _cron_find_january_first(year);
  next_january bigint := _cron_find_january_first(year + 1);
  days bigint := 0;
BEGIN
  WHILE monday < first + length LOOP
    IF monday + 3 >= next_january THEN january := next_january; END IF;
    IF (weeks >> ((monday + 3 - january) / 7 + 1)::int) & 1 = 1 THEN
      days := days | CASE
        WHEN monday < first THEN 127 >> (first - monday)::int
        ELSE 127::bigint << (monday - first)::int
      END;
    END IF;
    monday := monday + 7;
  END LOOP;
  RETURN days;
END $$;

-- Returns the number of the day 1 January of a year.
CREATE OR REPLACE FUNCTION _cron_find_january_first(year bigint)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
  RETURN 365 * year + (year + 399) / 4 - (year + 399) / 100 + (year + 399) / 400 - 156;
END $$;

CREATE OR REPLACE FUNCTION _cron_find_year_of_day(day bigint)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  -- A first guess, which may be one year too high or too low.
  year bigint := day * 400 / 146097;
BEGIN
  WHILE day >= _cron_find_january_first(year + 1) LOOP year := year + 1; END LOOP;
  WHILE day < _cron_find_january_first(year) LOOP year := year - 1; END LOOP;
  RETURN year;
END $$;

-- Returns the first month in which the schedule has a day, searching from `month` forwards or
-- backwards (`direction`); NULL if there is none. Months count from March of year 0. There are 28
-- kinds of years, by the weekday of their first day and by whether the year, or the year before, is
-- a leap year. The search skips kinds of years in which it has found no day, and stops after a
-- cycle of 400 years.
CREATE OR REPLACE FUNCTION _cron_find_month_with_day(c bigint[], b int, month bigint, direction int)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  year bigint := (month + 2) / 12;
  has_years boolean := _cron_part_years_index(c, b) > 0;
  last bigint;
  found bigint;
  kind int;
  empty bigint := 0;
BEGIN
  last := CASE
    WHEN has_years THEN CASE WHEN direction > 0 THEN 3000 ELSE 1970 END
    ELSE greatest(year + 401 * direction, 0)
  END;
  IF has_years AND year NOT BETWEEN 1970 AND 3000 THEN
    IF (year > 3000) = (direction > 0) THEN RETURN NULL; END IF;
    year := CASE WHEN direction > 0 THEN 1970 ELSE 3000 END;
    month := NULL;
  END IF;
  WHILE (last - year) * direction >= 0 LOOP
    kind := (_cron_find_january_first(year) + 3) % 7 * 4
      + CASE
        WHEN _cron_is_leap_year(year) THEN 2
        WHEN _cron_is_leap_year(year - 1) THEN 1
        ELSE 0
      END;
    IF (empty >> kind) & 1 = 0 AND _cron_part_has_year(c, b, year) THEN
      found := _cron_find_month_with_day_in_year(
        c,
        b,
        year,
        coalesce(month, year * 12 + CASE WHEN direction > 0 THEN -2 ELSE 9 END),
        direction);
      IF found IS NOT NULL THEN RETURN found; END IF;
      IF month IS NULL THEN empty := empty | (1::bigint << kind); END IF;
    END IF;
    year := year + direction;
    -- Only the first year starts at the given month; later years are searched from their first or
    -- last month.
    month := NULL;
  END LOOP;
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION _cron_is_leap_year(year bigint)
RETURNS boolean
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
  RETURN year % 4 = 0 AND (year % 100 <> 0 OR year % 400 = 0);
END $$;

-- Returns the first month of one year in which the schedule has a day, searching from `month`
-- forwards or backwards (`direction`); NULL if there is none.
CREATE OR REPLACE FUNCTION _cron_find_month_with_day_in_year(
  c bigint[], b int, year bigint, month bigint, direction int
)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  first bigint;
BEGIN
  WHILE month >= 0 AND (month + 2) / 12 = year LOOP
    IF (_cron_part_months(c, b) >> (month % 12)::int) & 1 = 1 THEN
      first := _find_month_start(month);
      IF _cron_find_month_days(c, b, first, (_find_month_start(month + 1) - first)::int) <> 0 THEN
        RETURN month;
      END IF;
    END IF;
    month := month + direction;
  END LOOP;
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION _find_month_start(month bigint)
RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN 365 * (month / 12) + month / 48 - month / 1200 + month / 4800
  + (153 * (month % 12) + 2) / 5;

CREATE OR REPLACE FUNCTION _cron_part_has_year(c bigint[], b int, year bigint)
RETURNS boolean
LANGUAGE sql IMMUTABLE
RETURN CASE
  WHEN _cron_part_years_index(c, b) = 0 THEN true
  WHEN year < c[_cron_part_years_index(c, b)]
    OR year > c[_cron_part_years_index(c, b) + 1]
  THEN false
  WHEN c[_cron_part_years_index(c, b) + 2] > 0 THEN
    (year - c[_cron_part_years_index(c, b)]) % c[_cron_part_years_index(c, b) + 2] = 0
  ELSE
    (
      c[_cron_part_years_index(c, b) + 3 + (year - 1970)::int / 62]
      >> ((year - 1970) % 62)::int
    ) & 1 = 1
END;

-- Returns how many days a month has that begins on day `first`. PostgreSQL inlines this function
-- and the next one, so that they cost the search for an instant no call.
CREATE OR REPLACE FUNCTION _find_month_length(year int, month int, first int)
RETURNS int
LANGUAGE sql IMMUTABLE
RETURN CASE
  WHEN month < 11 THEN (153 * month + 155) / 5 - (153 * month + 2) / 5
  ELSE 365 * year + 365 + (year + 1) / 4 - (year + 1) / 100 + (year + 1) / 400 - first
END;

-- Does what _cron_find_month_days() does, for a part without special items.
CREATE OR REPLACE FUNCTION _find_plain_month_days(c bigint[], b int, first int, length int)
RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN CASE
  WHEN _cron_part_takes_either_day(c, b)
    THEN _cron_part_month_days(c, b) | (_cron_part_weekdays(c, b) >> (first + 3) % 7)
  ELSE _cron_part_month_days(c, b) & (_cron_part_weekdays(c, b) >> (first + 3) % 7)
END & ((1::bigint << length) - 1);

-- Which days a schedule names, a month at a time: a mask with bit 0 for the 1st. Days are counted from 0000-03-01, a Wednesday, so that a
-- leap day ends its year: month m of year y (March = 0) begins on day 365y + y/4 - y/100 + y/400 + (153m + 2)/5. Weekdays count from Sunday = 0.

-- All that the day fields and WOY: say, for the month of this length that begins on this day. Each set of specials is turned as a whole:
-- lanes of seven bits, one for each week of a month, are rotated to the weekday that the month begins or ends with.
CREATE OR REPLACE FUNCTION cron_month_days(c bigint[], b int, first bigint, length int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  whole bigint := (1::bigint << length) - 1;
  f int := (first + 3) % 7;                              -- the weekday of the 1st, and that of the next month's
  g int := (f + length) % 7;
  of_month bigint := c[b + 9];
  of_week bigint := c[b + 10] >> f;
  workdays bigint;
BEGIN
  IF c[b + 15] = 1 THEN
    of_month := of_month | (c[b + 16] >> 31 - length);
    workdays := ((c[b + 17] >> 31 - length) | c[b + 18]) & whole;
    IF workdays <> 0 THEN of_month := of_month | cron_nearest_workdays(workdays, length, f); END IF;
    of_week := of_week | cron_rotate_weeks(c[b + 19], f) | (cron_rotate_weeks(c[b + 20], g) >> 35 - length) | (c[b + 21] >> (f + 6) % 7);
  END IF;
  IF c[b + 14] <> 0 THEN whole := whole & cron_week_days(c[b + 14], first, length); END IF;
  RETURN CASE c[b + 11] WHEN 1 THEN of_month | of_week ELSE of_month & of_week END & whole;
END $$;

-- Each day that is a Saturday or Sunday gives way to the nearest working day of the month.
CREATE OR REPLACE FUNCTION cron_nearest_workdays(days bigint, length int, first_weekday int) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  saturdays bigint := days & ((34630287489 << 6) >> first_weekday);
  sundays bigint := days & (34630287489 >> first_weekday);
BEGIN
  RETURN (days & ~(saturdays | sundays))
    | (saturdays >> 1) | ((saturdays & 1) << 2)
    | ((sundays << 1) & ((1::bigint << length) - 1)) | ((sundays >> length - 1) << length - 3);
END $$;

CREATE OR REPLACE FUNCTION cron_rotate_weeks(lanes bigint, n int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN ((lanes >> n) & (270549121 * (127 >> n)::bigint)) | ((lanes << 7 - n) & (270549121 * (127 - (127 >> n))::bigint));
END $$;

-- The days of a month that lie in the given ISO weeks (bit w = week w). A week belongs to the year of its Thursday.
CREATE OR REPLACE FUNCTION cron_week_days(weeks bigint, first bigint, length int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  monday bigint := first - (first + 2) % 7;
  year bigint := cron_year(monday + 3);
  january bigint := cron_january(year);
  next_january bigint := cron_january(year + 1);
  days bigint := 0;
BEGIN
  WHILE monday < first + length LOOP
    IF monday + 3 >= next_january THEN january := next_january; END IF;
    IF (weeks >> ((monday + 3 - january) / 7 + 1)::int) & 1 = 1 THEN
      days := days | CASE WHEN monday < first THEN 127 >> (first - monday)::int ELSE 127::bigint << (monday - first)::int END;
    END IF;
    monday := monday + 7;
  END LOOP;
  RETURN days;
END $$;

-- 1 January of a year, and the year of a day.
CREATE OR REPLACE FUNCTION cron_january(year bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN 365 * year + (year + 399) / 4 - (year + 399) / 100 + (year + 399) / 400 - 156;
END $$;

CREATE OR REPLACE FUNCTION cron_year(day bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  year bigint := day * 400 / 146097;                     -- of the years that begin in March, perhaps one too high or low
BEGIN
  WHILE day >= cron_january(year + 1) LOOP year := year + 1; END LOOP;
  WHILE day < cron_january(year) LOOP year := year - 1; END LOOP;
  RETURN year;
END $$;

-- The month, counted from March of year 0, in which the schedule's next day is, from the month given or from it backwards; NULL if there is
-- none. A year is one of 28 kinds, by its first weekday and whether it, or the year before, is a leap year: a kind that had no day has none
-- again, and what no year of a whole cycle of 400 has, none has.
CREATE OR REPLACE FUNCTION cron_find_month(c bigint[], b int, month bigint, direction int) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  year bigint := (month + 2) / 12;
  only_years boolean := c[b + 22] > 0;
  last bigint;
  found bigint;
  kind int;
  empty bigint := 0;
BEGIN
  last := CASE WHEN only_years THEN CASE WHEN direction > 0 THEN 3000 ELSE 1970 END ELSE greatest(year + 401 * direction, 0) END;
  IF only_years AND year NOT BETWEEN 1970 AND 3000 THEN
    IF (year > 3000) = (direction > 0) THEN RETURN NULL; END IF;
    year := CASE WHEN direction > 0 THEN 1970 ELSE 3000 END;
    month := NULL;
  END IF;
  WHILE (last - year) * direction >= 0 LOOP
    kind := (cron_january(year) + 3) % 7 * 4 + CASE WHEN cron_is_leap(year) THEN 2 WHEN cron_is_leap(year - 1) THEN 1 ELSE 0 END;
    IF (empty >> kind) & 1 = 0 AND cron_has_year(c, b, year) THEN
      found := cron_month_in_year(c, b, year, coalesce(month, year * 12 + CASE WHEN direction > 0 THEN -2 ELSE 9 END), direction);
      IF found IS NOT NULL THEN RETURN found; END IF;
      IF month IS NULL THEN empty := empty | (1::bigint << kind); END IF;
    END IF;
    year := year + direction;
    month := NULL;                                       -- of the first year only a part counted
  END LOOP;
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION cron_is_leap(year bigint) RETURNS boolean LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN year % 4 = 0 AND (year % 100 <> 0 OR year % 400 = 0);
END $$;

-- The first month of a year with a day, from this one on in this direction.
CREATE OR REPLACE FUNCTION cron_month_in_year(c bigint[], b int, year bigint, month bigint, direction int) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  first bigint;
BEGIN
  WHILE month >= 0 AND (month + 2) / 12 = year LOOP
    IF (c[b + 8] >> (month % 12)::int) & 1 = 1 THEN
      first := cron_month_start(month);
      IF cron_month_days(c, b, first, (cron_month_start(month + 1) - first)::int) <> 0 THEN RETURN month; END IF;
    END IF;
    month := month + direction;
  END LOOP;
  RETURN NULL;
END $$;

-- PostgreSQL puts the expression in place of the call.
CREATE OR REPLACE FUNCTION cron_month_start(month bigint) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 365 * (month / 12) + month / 48 - month / 1200 + month / 4800 + (153 * (month % 12) + 2) / 5;

-- Whether the year field allows a year. PostgreSQL puts the expression in place of the call.
CREATE OR REPLACE FUNCTION cron_has_year(c bigint[], b int, year bigint) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
  WHEN c[b + 22] = 0 THEN true
  WHEN year < c[c[b + 22]::int] OR year > c[c[b + 22]::int + 1] THEN false
  WHEN c[c[b + 22]::int + 2] > 0 THEN (year - c[c[b + 22]::int]) % c[c[b + 22]::int + 2] = 0
  ELSE (c[(c[b + 22] + 3 + (year - 1970) / 62)::int] >> ((year - 1970) % 62)::int) & 1 = 1 END;

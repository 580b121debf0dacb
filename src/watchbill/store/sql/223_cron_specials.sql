-- Fields that are more than one mask: years, and days that depend on the month.

-- What most items are: a year, steps of *, a range. NULL for anything else, right or wrong. PostgreSQL puts the expression in place of the call.
CREATE OR REPLACE FUNCTION cron_simple_years(item text) RETURNS bigint[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
  WHEN item ^@ '*/' THEN CASE WHEN item ~ '^[*]/0*[1-9][0-9]{0,2}$' THEN ARRAY[1970, 3000, substr(item, 3)::bigint] END
  WHEN octet_length(item) = 9 AND left(item, 4) <= right(item, 4) THEN
    CASE WHEN item ~ '^(19[7-9]|2[0-9]{2})[0-9]-(19[7-9]|2[0-9]{2})[0-9]$' THEN ARRAY[left(item, 4)::bigint, right(item, 4)::bigint, 1] END
  WHEN item ~ '^0*(19[7-9]|2[0-9]{2})[0-9]$' THEN ARRAY[item::bigint, item::bigint, 1]
  END;

-- The year field: {first, last, step}, or for a list {1970, last, 0} and behind it masks of 62 years each: most need one. In between a list is a string
-- of bits, whose first one is 1970.
CREATE OR REPLACE FUNCTION cron_years(word text, p text, n int, w int) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  item text;
  range bigint[];
  step int;
  near bigint := 0;                                      -- the first 62 years, which do for most
  every varbit;                                          -- from 1970 on, and past 3000
  years varbit;
BEGIN
  IF octet_length(word) = 4 AND word ~ '^(19[7-9]|2[0-9]{2})[0-9]$' THEN RETURN ARRAY[word::bigint, word::bigint, 1]; END IF;
  FOREACH item IN ARRAY cron_items(word) LOOP
    IF octet_length(item) = 4 AND item ~ '^(19[7-9]|20[0-2])[0-9]$' THEN                   -- as most are
      near := near | (1::bigint << item::int - 1970);
      CONTINUE;
    END IF;
    range := coalesce(cron_simple_years(item), cron_year_range(item));
    IF range IS NULL THEN
      near := cron_refuse_item(item, word, 7, p, n, w, 0);
    ELSIF item = word THEN
      RETURN range;
    ELSIF range[2] < 2032 THEN
      near := near | ((cron_steps(range[3]::int) << range[1]::int - 1970) & ((2::bigint << range[2]::int - 1970) - 1));
    ELSIF range[1] = range[2] THEN
      years := coalesce(years, 0::bit(1054)) | (B'1'::bit(1054) >> range[1]::int - 1970);
    ELSE
      step := least(range[3], 1031)::int;
      every := (cron_year_steps() ->> step::text)::bit(1054);
      IF every IS NULL THEN                              -- from 100 on: twice as many bits each time
        every := B'1'::bit(1054) | (B'1'::bit(1054) >> step);
        every := every | (every >> 2 * step);
        every := every | (every >> 4 * step) | (every >> 8 * step);
      END IF;
      every := every >> range[1]::int - 1970;
      years := coalesce(years, 0::bit(1054)) | CASE WHEN range[2] < 3000 THEN every & (~0::bit(1054) << 3023 - range[2]::int) ELSE every END;
    END IF;
  END LOOP;
  IF years IS NULL THEN RETURN ARRAY[1970, 2031, 0, near]; END IF;
  years := reverse(years::text)::bit(1054) & (~0::bit(1054) >> 23) | near::bit(1054);
  IF substring(years FROM 1 FOR 992) = 0::bit(992) THEN RETURN ARRAY[1970, 2031, 0, substring(years FROM 993)::bit(62)::bigint]; END IF;
  RETURN '{1970,3000,0}' || ARRAY[                       -- written out, as a loop would take longer than all the rest
    substring(years FROM 993 FOR 62)::bit(62)::bigint, substring(years FROM 931 FOR 62)::bit(62)::bigint, substring(years FROM 869 FOR 62)::bit(62)::bigint,
    substring(years FROM 807 FOR 62)::bit(62)::bigint, substring(years FROM 745 FOR 62)::bit(62)::bigint, substring(years FROM 683 FOR 62)::bit(62)::bigint,
    substring(years FROM 621 FOR 62)::bit(62)::bigint, substring(years FROM 559 FOR 62)::bit(62)::bigint, substring(years FROM 497 FOR 62)::bit(62)::bigint,
    substring(years FROM 435 FOR 62)::bit(62)::bigint, substring(years FROM 373 FOR 62)::bit(62)::bigint, substring(years FROM 311 FOR 62)::bit(62)::bigint,
    substring(years FROM 249 FOR 62)::bit(62)::bigint, substring(years FROM 187 FOR 62)::bit(62)::bigint, substring(years FROM 125 FOR 62)::bit(62)::bigint,
    substring(years FROM 63 FOR 62)::bit(62)::bigint, substring(years FROM 1 FOR 62)::bit(62)::bigint];
END $$;

-- Any item of a year field as {first, last, step}; NULL for what is none.
CREATE OR REPLACE FUNCTION cron_year_range(item text) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  range text := split_part(item, '/', 1);
  low text := split_part(range, '-', 1);
  first int := CASE range WHEN '*' THEN 1970 ELSE cron_number(low, 7) END;
  last int := CASE WHEN low <> range THEN cron_number(substr(range, length(low) + 2), 7) WHEN range = item AND range <> '*' THEN first ELSE 3000 END;
  step int := CASE range WHEN item THEN 1 ELSE cron_number(substr(item, length(range) + 2), 7) END;
BEGIN
  IF first >= 1970 AND last BETWEEN first AND 3000 AND step > 0 THEN RETURN ARRAY[first, last, step]::bigint[]; END IF;
  RETURN NULL;
END $$;

-- {plain days, L-n, L-nW, nW} of a day-of-month field with specials.
CREATE OR REPLACE FUNCTION cron_month_specials(word text, p text, n int, w int) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  item text;
  plain bigint;
  mark int;                                              -- see cron_month_marks
  days bigint := 0;
  lasts bigint := 0;
  last_workdays bigint := 0;
  workdays bigint := 0;
BEGIN
  FOREACH item IN ARRAY cron_items(word) LOOP
    mark := (cron_month_marks() ->> item)::int;
    IF mark IS NULL THEN
      plain := cron_meaning(item, 4);
      IF plain IS NULL THEN
        mark := CASE WHEN item ~ '^(L-)?0+[1-9]' THEN cron_month_marks() ->> regexp_replace(item, '0+', '') END::int;
        IF mark IS NULL THEN plain := coalesce(cron_item(item, 4), cron_refuse_month_item(item, word, p, n, w)); END IF;
      END IF;
    END IF;
    IF mark IS NULL THEN
      days := days | plain;
    ELSIF mark < 64 THEN
      lasts := lasts | (1::bigint << mark);
    ELSIF mark < 128 THEN
      last_workdays := last_workdays | (1::bigint << mark - 64);
    ELSE
      workdays := workdays | (1::bigint << mark - 128);
    END IF;
  END LOOP;
  RETURN ARRAY[days, lasts, last_workdays, workdays];
END $$;

-- {plain weekdays, d#n, d#-n, dWk} of a day-of-week field with specials.
CREATE OR REPLACE FUNCTION cron_week_specials(word text, p text, n int, w int, skip int) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  item text;
  plain bigint;
  mark int;                                              -- see cron_week_marks
  behind text;                                           -- the weekday: L, #L, #n, #-n or Wn
  weekdays bigint := 0;
  nth bigint := 0;
  nth_last bigint := 0;
  rows bigint := 0;
BEGIN
  FOREACH item IN ARRAY cron_items(word) LOOP
    mark := (cron_week_marks() ->> item)::int;
    IF mark IS NULL THEN
      plain := cron_meaning(upper(item), 6);
      IF plain IS NULL THEN
        IF item ~ '[#LW]' THEN                           -- perhaps with a small letter or a zero too many
          behind := CASE WHEN item >= 'A' THEN substr(item, 4) ELSE ltrim(item, '0123456789') END;
          mark := (cron_week_marks() ->> (cron_number(left(item, -length(behind)), 6)
            || CASE WHEN behind ~ '^(#-?|W)0+[1-9]' THEN regexp_replace(behind, '0+', '') ELSE behind END))::int;
        END IF;
        IF mark IS NULL THEN plain := coalesce(cron_item(item, 6), cron_refuse_week_item(item, word, p, n, w, skip)); END IF;
      END IF;
    END IF;
    IF mark IS NULL THEN
      weekdays := weekdays | plain;
    ELSIF mark < 64 THEN
      nth := nth | (1::bigint << mark);
    ELSIF mark < 128 THEN
      nth_last := nth_last | (1::bigint << mark - 64);
    ELSE
      rows := rows | (1::bigint << mark - 128);
    END IF;
  END LOOP;
  RETURN ARRAY[weekdays, nth, nth_last, rows];
END $$;

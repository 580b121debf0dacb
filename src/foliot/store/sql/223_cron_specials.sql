-- Fields that are more than one mask: years, and days that depend on the month.

-- What most items are: steps of *, a range. NULL for anything else, right or wrong. PostgreSQL puts the expression in place of the call.
CREATE OR REPLACE FUNCTION cron_simple_years(item text) RETURNS bigint[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
  WHEN item ^@ '*/' THEN CASE WHEN item ~ '^[*]/[1-9][0-9]{0,2}$' THEN ARRAY[1970, 3000, substr(item, 3)::bigint] END
  WHEN octet_length(item) = 9 AND left(item, 4) <= right(item, 4) THEN
    CASE WHEN item ~ '^(19[7-9]|2[0-9]{2})[0-9]-(19[7-9]|2[0-9]{2})[0-9]$' THEN ARRAY[left(item, 4)::bigint, right(item, 4)::bigint, 1] END
  END;

-- The year field: {first, last, step}, or for a list {1970, last, 0} and behind it masks of 62 years each: most need one. In between a list is a string
-- of bits, whose first one is 1970.
CREATE OR REPLACE FUNCTION cron_years(word text, p text, n int, w int) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  item text;
  range bigint[];
  every varbit;                                          -- from 1970 on, and past 3000
  years varbit := 0::bit(1054);
BEGIN
  IF strpos(word, ',') = 0 THEN RETURN coalesce(cron_simple_years(word), cron_year_range(word), cron_refuse_years(word, word, p, n, w)); END IF;
  FOREACH item IN ARRAY cron_items(word) LOOP
    IF item ~ '^(19[7-9]|2[0-9]{2})[0-9]$' THEN
      years := years | (B'1'::bit(1054) >> item::int - 1970);
    ELSE
      range := coalesce(cron_simple_years(item), cron_year_range(item), cron_refuse_years(item, word, p, n, w));
      every := coalesce(cron_year_steps() ->> range[3]::text, repeat('1' || repeat('0', least(range[3], 1031)::int - 1), 11))::bit(1054);
      years := years | ((every >> range[1]::int - 1970) & (~0::bit(1054) << 3023 - range[2]::int));
    END IF;
  END LOOP;
  IF substring(years FROM 63) = 0::bit(992) THEN RETURN ARRAY[1970, 2031, 0, reverse(substring(years FROM 1 FOR 62)::text)::bit(62)::bigint]; END IF;
  years := reverse(years::text)::bit(1054);
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
  slash int := strpos(item, '/');
  range text := CASE slash WHEN 0 THEN item ELSE left(item, slash - 1) END;
  dash int := strpos(range, '-');
  first int := CASE range WHEN '*' THEN 1970 ELSE cron_number(CASE dash WHEN 0 THEN range ELSE left(range, dash - 1) END, 7) END;
  last int := CASE WHEN dash = 0 AND (slash > 0 OR range = '*') THEN 3000 ELSE cron_number(substr(range, dash + 1), 7) END;
  step int := CASE slash WHEN 0 THEN 1 ELSE cron_number(substr(item, slash + 1), 7) END;
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
    plain := cron_meaning(item, 4);
    IF plain IS NULL THEN
      mark := coalesce(cron_month_marks() ->> item, CASE WHEN item ~ '^(L-)?0+[1-9].*' THEN cron_month_marks() ->> regexp_replace(item, '0+', '') END)::int;
      IF mark IS NULL THEN plain := coalesce(cron_item(item, 4), cron_refuse_month_item(item, word, p, n, w)); END IF;
    END IF;
    IF plain IS NOT NULL THEN
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
    plain := cron_meaning(upper(item), 6);
    IF plain IS NULL THEN
      mark := (cron_week_marks() ->> item)::int;
      IF mark IS NULL THEN                               -- perhaps with a small letter or a zero too many
        behind := CASE WHEN item >= 'A' THEN substr(item, 4) ELSE ltrim(item, '0123456789') END;
        mark := (cron_week_marks() ->> (cron_number(left(item, -length(behind)), 6)
          || CASE WHEN behind ~ '^(#-?|W)0+[1-9]' THEN regexp_replace(behind, '0+', '') ELSE behind END))::int;
        IF mark IS NULL THEN plain := coalesce(cron_item(item, 6), cron_refuse_week_item(item, word, p, n, w, skip)); END IF;
      END IF;
    END IF;
    IF plain IS NOT NULL THEN
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

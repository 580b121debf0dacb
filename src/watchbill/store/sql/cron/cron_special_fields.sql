-- Parses fields that need more than one mask: years, and days that depend on the month.

-- Returns {first, last, step} of a usual item of the year field: a year, steps of *, or a range;
-- NULL for any other item.
CREATE OR REPLACE FUNCTION _parse_simple_year_item(item text)
RETURNS bigint[]
LANGUAGE sql IMMUTABLE
RETURN CASE
  WHEN item ^@ '*/' THEN
    CASE
      WHEN item ~ '^[*]/0*[1-9][0-9]{0,2}$' THEN ARRAY[1970, 3000, substr(item, 3)::bigint]
    END
  WHEN octet_length(item) = 9 AND left(item, 4) <= right(item, 4) THEN
    CASE
      WHEN item ~ '^(19[7-9]|2[0-9]{2})[0-9]-(19[7-9]|2[0-9]{2})[0-9]$'
        THEN ARRAY[left(item, 4)::bigint, right(item, 4)::bigint, 1]
    END
  WHEN item ~ '^0*(19[7-9]|2[0-9]{2})[0-9]$' THEN ARRAY[item::bigint, item::bigint, 1]
END;

-- Parses the year field. Returns {first, last, step}; for a list of items {1970, last, 0} and masks
-- of 62 years each. While a list is parsed, its years are a string of bits from 1970 on.
CREATE OR REPLACE FUNCTION _cron_parse_years(word text, p text, n int, w int)
RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  item text;
  range bigint[];
  step int;
  -- This mask holds the years 1970 to 2031, which suffice for most lists.
  early bigint := 0;
  every varbit;
  years varbit;
BEGIN
  IF octet_length(word) = 4 AND word ~ '^(19[7-9]|2[0-9]{2})[0-9]$' THEN
    RETURN ARRAY[word::bigint, word::bigint, 1];
  END IF;
  FOREACH item IN ARRAY _split_field_list(word) LOOP
    IF octet_length(item) = 4 AND item ~ '^(19[7-9]|20[0-2])[0-9]$' THEN
      early := early | (1::bigint << item::int - 1970);
      CONTINUE;
    END IF;
    range := coalesce(_parse_simple_year_item(item), _cron_parse_year_range(item));
    IF range IS NULL THEN
      early := _cron_refuse_item(item, word, 7, p, n, w, 0);
    ELSIF item = word THEN
      RETURN range;
    ELSIF range[2] < 2032 THEN
      early := early | (
        (_make_step_mask(range[3]::int) << range[1]::int - 1970)
        & ((2::bigint << range[2]::int - 1970) - 1));
    ELSIF range[1] = range[2] THEN
      years := coalesce(years, 0::bit(1054)) | (B'1'::bit(1054) >> range[1]::int - 1970);
    ELSE
      step := least(range[3], 1031)::int;
      every := (_cron_list_year_masks() ->> step::text)::bit(1054);
      -- _cron_list_year_masks() has only steps below 100. With a larger step, at most 11 years lie
      -- between 1970 and 3000, so a few shifts make the mask.
      IF every IS NULL THEN
        every := B'1'::bit(1054) | (B'1'::bit(1054) >> step);
        every := every | (every >> 2 * step);
        every := every | (every >> 4 * step) | (every >> 8 * step);
      END IF;
      every := every >> range[1]::int - 1970;
      years := coalesce(years, 0::bit(1054)) | CASE
        WHEN range[2] < 3000 THEN every & (~0::bit(1054) << 3023 - range[2]::int)
        ELSE every
      END;
    END IF;
  END LOOP;
  IF years IS NULL THEN RETURN ARRAY[1970, 2031, 0, early]; END IF;
  years := reverse(years::text)::bit(1054) & (~0::bit(1054) >> 23) | early::bit(1054);
  IF substring(years FROM 1 FOR 992) = 0::bit(992) THEN
    RETURN ARRAY[1970, 2031, 0, substring(years FROM 993)::bit(62)::bigint];
  END IF;
  -- Lists the 17 masks one by one, because a loop would be slow.
  RETURN '{1970,3000,0}' || ARRAY[
    substring(years FROM 993 FOR 62)::bit(62)::bigint,
    substring(years FROM 931 FOR 62)::bit(62)::bigint,
    substring(years FROM 869 FOR 62)::bit(62)::bigint,
    substring(years FROM 807 FOR 62)::bit(62)::bigint,
    substring(years FROM 745 FOR 62)::bit(62)::bigint,
    substring(years FROM 683 FOR 62)::bit(62)::bigint,
    substring(years FROM 621 FOR 62)::bit(62)::bigint,
    substring(years FROM 559 FOR 62)::bit(62)::bigint,
    substring(years FROM 497 FOR 62)::bit(62)::bigint,
    substring(years FROM 435 FOR 62)::bit(62)::bigint,
    substring(years FROM 373 FOR 62)::bit(62)::bigint,
    substring(years FROM 311 FOR 62)::bit(62)::bigint,
    substring(years FROM 249 FOR 62)::bit(62)::bigint,
    substring(years FROM 187 FOR 62)::bit(62)::bigint,
    substring(years FROM 125 FOR 62)::bit(62)::bigint,
    substring(years FROM 63 FOR 62)::bit(62)::bigint,
    substring(years FROM 1 FOR 62)::bit(62)::bigint];
END $$;

-- Returns {first, last, step} of any item of the year field; NULL if the item is invalid.
CREATE OR REPLACE FUNCTION _cron_parse_year_range(item text)
RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  range text := split_part(item, '/', 1);
  low text := split_part(range, '-', 1);
  first int := CASE range WHEN '*' THEN 1970 ELSE _parse_field_value(low, 7) END;
  last int := CASE
    WHEN low <> range THEN _parse_field_value(substr(range, length(low) + 2), 7)
    WHEN range = item AND range <> '*' THEN first
    ELSE 3000
  END;
  step int := CASE range
    WHEN item THEN 1
    ELSE _parse_field_value(substr(item, length(range) + 2), 7)
  END;
BEGIN
  IF first >= 1970 AND last BETWEEN first AND 3000 AND step > 0 THEN
    RETURN ARRAY[first, last, step]::bigint[];
  END IF;
  RETURN NULL;
END $$;

-- Parses a day-of-month field with special items. Returns four masks: ordinary days, L-n (n days
-- before the last day), L-nW (the working day nearest to that) and nW (the one nearest to day n).
CREATE OR REPLACE FUNCTION _cron_parse_special_month_days(word text, p text, n int, w int)
RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  item text;
  plain bigint;
  -- The number that _cron_list_month_special_bits() gives a special item; NULL for an ordinary
  -- item.
  mark int;
  days bigint := 0;
  lasts bigint := 0;
  last_workdays bigint := 0;
  workdays bigint := 0;
BEGIN
  FOREACH item IN ARRAY _split_field_list(word) LOOP
    mark := (_cron_list_month_special_bits() ->> item)::int;
    IF mark IS NULL THEN
      plain := _look_up_word_mask(item, 4);
      IF plain IS NULL THEN
        mark := CASE
          WHEN item ~ '^(L-)?0+[1-9]'
            THEN _cron_list_month_special_bits() ->> regexp_replace(item, '0+', '')
        END::int;
        IF mark IS NULL THEN
          plain := coalesce(
            _cron_parse_field_item(item, 4), _cron_refuse_month_day_item(item, word, p, n, w));
        END IF;
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

-- Parses a day-of-week field with special items. Returns four masks: ordinary weekdays, d#n (the
-- n-th weekday d of a month), d#-n (the n-th from its end) and dWk (weekday d in row k of a
-- calendar).
CREATE OR REPLACE FUNCTION _cron_parse_special_weekdays(word text, p text, n int, w int, skip int)
RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  item text;
  plain bigint;
  -- The number that _cron_list_week_special_bits() gives a special item; NULL for an ordinary item.
  mark int;
  -- The text that follows the weekday in a special item: L, #L, #n, #-n or Wn.
  tail text;
  weekdays bigint := 0;
  nth bigint := 0;
  nth_last bigint := 0;
  rows bigint := 0;
BEGIN
  FOREACH item IN ARRAY _split_field_list(word) LOOP
    mark := (_cron_list_week_special_bits() ->> item)::int;
    IF mark IS NULL THEN
      plain := _look_up_word_mask(upper(item), 6);
      IF plain IS NULL THEN
        -- The item may be a special one that is written with small letters or a leading zero.
        IF item ~ '[#LW]' THEN
          tail := CASE
            WHEN item >= 'A' THEN substr(item, 4)
            ELSE ltrim(item, '0123456789')
          END;
          mark := (_cron_list_week_special_bits() ->> (
            _parse_field_value(left(item, -length(tail)), 6)
            || CASE
              WHEN tail ~ '^(#-?|W)0+[1-9]' THEN regexp_replace(tail, '0+', '')
              ELSE tail
            END))::int;
        END IF;
        IF mark IS NULL THEN
          plain := coalesce(
            _cron_parse_field_item(item, 6), _cron_refuse_weekday_item(item, word, p, n, w, skip));
        END IF;
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

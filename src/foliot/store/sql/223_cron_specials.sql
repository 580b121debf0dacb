-- Fields that are more than one mask: years, and days that depend on the month.

-- What most items are: a year, a range, steps of *. NULL for anything else, right or wrong. PostgreSQL puts the expression in place of the call.
CREATE OR REPLACE FUNCTION cron_simple_years(item text) RETURNS int[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
  WHEN item ^@ '*/' THEN CASE WHEN item ~ '^[*]/[1-9][0-9]{0,3}$' THEN ARRAY[1970, 3000, substr(item, 3)::int] END
  WHEN octet_length(item) = 4 THEN CASE WHEN item ~ '^(19[7-9]|2[0-9]{2})[0-9]$' THEN ARRAY[item::int, item::int, 1] END
  WHEN octet_length(item) = 9 AND left(item, 4) <= right(item, 4) THEN
    CASE WHEN item ~ '^(19[7-9]|2[0-9]{2})[0-9]-(19[7-9]|2[0-9]{2})[0-9]$' THEN ARRAY[left(item, 4)::int, right(item, 4)::int, 1] END
  END;

-- The year field: {first, last, step}, or for a list {1970, last, 0} and behind it masks of 62 years each: most need one. In between a list is a bit string,
-- whose last bit is 1970.
CREATE OR REPLACE FUNCTION cron_years(word text, p text, n int, w int) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  item text;
  range int[];
  size int;                                              -- from the first to the last year of an item
  period int;
  row varbit;                                            -- every step-th bit of 1054, from the last on
  years varbit := 0::bit(1054);
BEGIN
  IF strpos(word, ',') = 0 THEN RETURN coalesce(cron_simple_years(word), cron_item(word, word, 7, p, n, w, 0)); END IF;
  FOREACH item IN ARRAY cron_items(word) LOOP
    IF octet_length(item) = 4 AND item ~ '^(19[7-9]|2[0-9]{2})[0-9]$' THEN
      years := years | (1::bit(1054) << item::int - 1970);
      CONTINUE;
    END IF;
    range := coalesce(cron_simple_years(item), cron_item(item, word, 7, p, n, w, 0));
    size := range[2] - range[1] + 1;
    row := CASE range[3] WHEN 1 THEN ~ 0::bit(1054) ELSE cron_steps(range[3])::bit(1054) END;
    period := CASE range[3] WHEN 1 THEN size ELSE range[3] * greatest((61 + range[3]) / range[3], 1) END;
    WHILE period < size LOOP                             -- twice as many bits each time
      row := row | (row << period);
      period := period * 2;
    END LOOP;
    years := years | (((row << 1054 - size) >> 1054 - size) << range[1] - 1970);
  END LOOP;
  IF substring(years FROM 1 FOR 992) = 0::bit(992) THEN RETURN ARRAY[1970, 2031, 0, substring(years FROM 993 FOR 62)::bit(62)::bigint]; END IF;
  RETURN '{1970,3000,0}' || ARRAY[                       -- written out, as a loop would take longer than all the rest
    substring(years FROM 993 FOR 62)::bit(62)::bigint, substring(years FROM 931 FOR 62)::bit(62)::bigint, substring(years FROM 869 FOR 62)::bit(62)::bigint,
    substring(years FROM 807 FOR 62)::bit(62)::bigint, substring(years FROM 745 FOR 62)::bit(62)::bigint, substring(years FROM 683 FOR 62)::bit(62)::bigint,
    substring(years FROM 621 FOR 62)::bit(62)::bigint, substring(years FROM 559 FOR 62)::bit(62)::bigint, substring(years FROM 497 FOR 62)::bit(62)::bigint,
    substring(years FROM 435 FOR 62)::bit(62)::bigint, substring(years FROM 373 FOR 62)::bit(62)::bigint, substring(years FROM 311 FOR 62)::bit(62)::bigint,
    substring(years FROM 249 FOR 62)::bit(62)::bigint, substring(years FROM 187 FOR 62)::bit(62)::bigint, substring(years FROM 125 FOR 62)::bit(62)::bigint,
    substring(years FROM 63 FOR 62)::bit(62)::bigint, substring(years FROM 1 FOR 62)::bit(62)::bigint];
END $$;

-- {plain days, L-n, L-nW, nW} of a day-of-month field with specials. What most of them are is read first, without a regular expression.
CREATE OR REPLACE FUNCTION cron_month_specials(word text, p text, n int, w int) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  item text;
  digits text;
  number int;
  plain bigint;
  days bigint := 0;
  lasts bigint := 0;
  last_workdays bigint := 0;
  workdays bigint := 0;
BEGIN
  FOREACH item IN ARRAY cron_items(word) LOOP
    number := CASE WHEN item LIKE '%W' THEN cron_digits(left(item, -1), 4) END;
    IF number IS NOT NULL THEN
      workdays := workdays | (1::bigint << number - 1);
    ELSIF item = 'L' THEN
      lasts := lasts | 1073741824;
    ELSIF item = 'LW' THEN
      last_workdays := last_workdays | 1073741824;
    ELSIF item ~ '^L-[0-9]+W?$' THEN
      digits := translate(item, 'L-W', '');
      number := coalesce(cron_digits(digits, 9), cron_value(digits, item, word, 9, p, n, w, 2));
      IF item LIKE '%W' THEN last_workdays := last_workdays | (1073741824 >> number); ELSE lasts := lasts | (1073741824 >> number); END IF;
    ELSIF item ~ '^[0-9]+W$' THEN
      workdays := workdays | (1::bigint << cron_value(rtrim(item, 'W'), item, word, 4, p, n, w, 0) - 1);
    ELSE
      plain := cron_simple(item, 4);
      IF plain IS NULL THEN
        IF upper(item) ~ '^(L(-[0-9]+)?W?|[0-9]+W)$' THEN PERFORM cron_refuse_small(item, 4, p, cron_position(p, n, w) + cron_item_place(word, item)); END IF;
        plain := cron_list(item, 4, p, n, w, cron_item_place(word, item));
      END IF;
      days := days | plain;
    END IF;
  END LOOP;
  RETURN ARRAY[days, lasts, last_workdays, workdays];
END $$;

-- {plain weekdays, d#n, d#-n, dWk} of a day-of-week field with specials.
CREATE OR REPLACE FUNCTION cron_week_specials(word text, p text, n int, w int, skip int) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  item text;
  mark text;                                             -- what is behind the weekday: L, #L, #n, #-n or Wn
  value text;
  day int;
  number int;
  plain bigint;
  weekdays bigint := 0;
  nth bigint := 0;
  nth_last bigint := 0;
  rows bigint := 0;
BEGIN
  FOREACH item IN ARRAY cron_items(word) LOOP
    day := cron_digits(left(item, 1), 6);                -- as it is in most, and their marks
    mark := substr(item, 2);
    number := CASE WHEN mark = 'L' THEN 0 WHEN mark LIKE '#_' OR mark LIKE 'W_' AND day < 7 THEN cron_digits(right(mark, 1), 10) END;
    IF day IS NULL OR number IS NULL THEN
      IF item !~ '^([0-9]+|[A-Za-z]{3})(#?L|#-?[0-9]+|W[0-9]+)$' THEN
        plain := cron_simple(item, 6);
        IF plain IS NULL THEN
          IF upper(item) ~ '^([0-9]+|[A-Z]{3})(#?L|#-?[0-9]+|W[0-9]+)$' THEN
            PERFORM cron_refuse_small(item, 6, p, cron_position(p, n, w) + skip + cron_item_place(word, item));
          END IF;
          plain := cron_list(item, 6, p, n, w, skip + cron_item_place(word, item));
        END IF;
        weekdays := weekdays | plain;
        CONTINUE;
      END IF;
      mark := CASE WHEN item >= 'A' THEN substr(item, 4) ELSE ltrim(item, '0123456789') END;
      value := left(item, -length(mark));
      day := coalesce(cron_digits(value, 6), cron_value(value, item, word, 6, p, n, w, skip));
      IF day = 7 AND mark ^@ 'W' THEN
        PERFORM cron_refuse(p, cron_position(p, n, w) + skip + cron_item_place(word, item), length(item), 'day of week', 'in a row of the month Sunday is 0, not 7', '0' || mark);
      END IF;
      value := ltrim(mark, 'W#-');
      number := CASE WHEN value = 'L' THEN 0 ELSE coalesce(cron_digits(value, 10), cron_value(value, item, word, 10, p, n, w, skip + length(item) - length(value))) END;
    END IF;
    IF number = 0 THEN
      nth_last := nth_last | (1::bigint << 28 + day % 7);
    ELSIF mark ^@ 'W' THEN
      rows := rows | (1::bigint << 7 * (number - 1) + (day + 6) % 7);
    ELSIF mark ^@ '#-' THEN
      nth_last := nth_last | (1::bigint << 7 * (5 - number) + day % 7);
    ELSE
      nth := nth | (1::bigint << 7 * (number - 1) + day % 7);
    END IF;
  END LOOP;
  RETURN ARRAY[weekdays, nth, nth_last, rows];
END $$;

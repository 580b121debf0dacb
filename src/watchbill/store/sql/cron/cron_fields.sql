-- Parses the five to seven fields of a pattern: lists of numbers, names, ranges and steps. A list
-- becomes a mask, in which bit n stands for the value n.
--
-- Fields have numbers: 1 second, 2 minute, 3 hour, 4 day of month, 5 month, 6 day of week, 7 year,
-- 8 week of year. Two more stand for numbers inside special items: 9 for the n of L-n, 10 for the n
-- of d#n and dWn. The next five functions say which values each field may have. PostgreSQL inlines
-- them.

CREATE OR REPLACE FUNCTION _cron_field_name(field int)
RETURNS text
LANGUAGE sql IMMUTABLE
RETURN (
  '{second,minute,hour,day of month,month,day of week,year,week of year,day of month,day of week}'
  ::text[])[field];

CREATE OR REPLACE FUNCTION _cron_field_min(field int)
RETURNS int
LANGUAGE sql IMMUTABLE
RETURN ('{0,0,0,1,1,0,1970,1,1,1}'::int[])[field];

CREATE OR REPLACE FUNCTION _cron_field_max(field int)
RETURNS int
LANGUAGE sql IMMUTABLE
RETURN ('{59,59,23,31,12,7,3000,53,30,5}'::int[])[field];

-- Returns how many values a field has before a range such as FRI-MON starts again at the lowest
-- one; 0 if a range of this field must not run backwards.
CREATE OR REPLACE FUNCTION _cron_field_cycle_length(field int)
RETURNS int
LANGUAGE sql IMMUTABLE
RETURN ('{60,60,24,0,12,7,0,53,0,0}'::int[])[field];

CREATE OR REPLACE FUNCTION _cron_field_value_names(field int)
RETURNS text[]
LANGUAGE sql IMMUTABLE
RETURN CASE field
  WHEN 5 THEN '{JAN,FEB,MAR,APR,MAY,JUN,JUL,AUG,SEP,OCT,NOV,DEC}'
  WHEN 6 THEN '{SUN,MON,TUE,WED,THU,FRI,SAT}'
  ELSE '{}'::text[]
END;

-- Parses the fields of a part and returns the 27 numbers that cron/cron_layout.sql describes.
-- cron/parse_cron.sql explains the arguments. It is one large function, because calls are slow.
CREATE OR REPLACE FUNCTION _cron_parse_fields(
  p text,
  n int,
  words text[],
  lo int,
  hi int,
  count int,
  tail int,
  own int,
  zone int,
  dst text,
  weeks bigint,
  modifier bigint[]
)
RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  -- The minutes are the first word of five, and the second word of six or seven.
  m int := CASE hi - lo WHEN 4 THEN lo ELSE lo + 1 END;
  of_month text := words[m + 2];
  of_week text := words[m + 4];
  seconds bigint := CASE hi - lo WHEN 4 THEN 1 ELSE _look_up_word_mask(words[lo], 1) END;
  minutes bigint := _look_up_word_mask(words[m], 2);
  hours bigint := _look_up_word_mask(words[m + 1], 3);
  days bigint := _look_up_word_mask(of_month, 4);
  months bigint := _look_up_word_mask(words[m + 3], 5);
  -- In this mask both bit 0 and bit 7 stand for Sunday.
  weekdays bigint := _look_up_word_mask(of_week, 6);
  month_specials bigint[];
  week_specials bigint[];
  -- `plus` is 1 if a + stands before the weekdays: then both day fields must match.
  plus int := 0;
  restricts_both boolean := of_month <> '*'
    AND of_month <> '?'
    AND of_week <> '*'
    AND of_week <> '?';
  reading int := CASE
    WHEN zone < 0 OR dst = 'once' THEN 0
    WHEN dst = 'skip' THEN 2
    WHEN dst = 'both' THEN 3
    -- A pattern with a time field that begins with * follows elapsed time.
    WHEN words[m] ^@ '*' OR words[m + 1] ^@ '*' OR hi - lo > 4 AND words[lo] ^@ '*' THEN 1
    ELSE 0
  END;
BEGIN
  IF hi - lo NOT BETWEEN 4 AND 6 THEN
    PERFORM _cron_refuse_pattern(p, _cron_find_word_position(p, n, lo), 'pattern', format(
      'a schedule has 5 fields (minute hour day month weekday), 6 (second first) or 7 (year last), '
      'not %s', hi - lo + 1));
  END IF;
  -- Parses the words that _look_up_word_mask() does not know. A word with one item is parsed
  -- without _cron_parse_field_list(), because calls are slow.
  IF seconds IS NULL THEN
    seconds := coalesce(
      CASE WHEN strpos(words[lo], ',') = 0 THEN _cron_parse_field_item(words[lo], 1) END,
      _cron_parse_field_list(words[lo], 1, p, n, lo, 0));
  END IF;
  IF minutes IS NULL THEN
    minutes := coalesce(
      CASE WHEN strpos(words[m], ',') = 0 THEN _cron_parse_field_item(words[m], 2) END,
      _cron_parse_field_list(words[m], 2, p, n, m, 0));
  END IF;
  IF hours IS NULL THEN
    hours := coalesce(
      CASE WHEN strpos(words[m + 1], ',') = 0 THEN _cron_parse_field_item(words[m + 1], 3) END,
      _cron_parse_field_list(words[m + 1], 3, p, n, m + 1, 0));
  END IF;
  IF days IS NULL THEN
    IF translate(of_month, '?LWlw', '') = of_month THEN
      days := _cron_parse_field_list(of_month, 4, p, n, m + 2, 0);
    ELSIF of_month = '?' THEN
      days := 4294967294;
    ELSE
      month_specials := _cron_parse_special_month_days(of_month, p, n, m + 2);
      days := month_specials[1];
    END IF;
  END IF;
  IF weekdays IS NULL THEN
    plus := CASE WHEN of_week ^@ '+' THEN 1 ELSE 0 END;
    of_week := substr(of_week, 1 + plus);
    IF translate(of_week, '#Ll', '') <> of_week OR of_week ~ '[Ww][0-9]' THEN
      week_specials := _cron_parse_special_weekdays(of_week, p, n, m + 4, plus);
      weekdays := week_specials[1];
    ELSIF words[m + 4] = '?' THEN
      weekdays := 127;
    ELSE
      weekdays := _cron_parse_field_list(of_week, 6, p, n, m + 4, plus);
    END IF;
  END IF;
  IF months IS NULL THEN
    months := coalesce(
      CASE WHEN strpos(words[m + 3], ',') = 0 THEN _cron_parse_field_item(words[m + 3], 5) END,
      _cron_parse_field_list(words[m + 3], 5, p, n, m + 3, 0));
  END IF;
  RETURN ARRAY[
    0,
    zone,
    (count = 1 AND modifier IS NULL AND reading < 2)::int,
    reading,
    seconds,
    minutes,
    hours,
    ((months >> 3) | (months << 9)) & 4095,
    days >> 1,
    ((weekdays | (weekdays >> 7)) & 127) * 34630287489,
    (restricts_both AND plus = 0)::int,
    _find_lowest_bit(hours) * 3600 + _find_lowest_bit(minutes) * 60 + _find_lowest_bit(seconds),
    _find_highest_bit(hours) * 3600 + _find_highest_bit(minutes) * 60 + _find_highest_bit(seconds),
    weeks,
    CASE WHEN weeks = 0 AND month_specials IS NULL AND week_specials IS NULL THEN 0 ELSE 1 END,
    coalesce(month_specials[2], 0),
    coalesce(month_specials[3], 0),
    coalesce(month_specials[4], 0),
    coalesce(week_specials[2], 0),
    coalesce(week_specials[3], 0),
    coalesce(week_specials[4], 0),
    CASE
      WHEN hi - lo = 6 AND words[hi] <> '*' THEN tail + coalesce(cardinality(modifier), 0)
      ELSE 0
    END,
    CASE WHEN modifier IS NULL THEN 0 ELSE tail END,
    0,
    0,
    count,
    own];
END $$;

-- Returns the number of a value, which is given in digits or as a name such as FRI. The number may
-- be out of bounds. Returns NULL for any other text.
CREATE OR REPLACE FUNCTION _parse_field_value(value text, field int)
RETURNS int
LANGUAGE sql IMMUTABLE
RETURN CASE
  WHEN value <> '' AND translate(value, '0123456789', '') = '' THEN
    CASE
      WHEN octet_length(value) < 10 THEN value
      ELSE '0' || left(ltrim(value, '0'), 5)
    END::int
  ELSE _cron_field_min(field) - 1 + array_position(_cron_field_value_names(field), upper(value))
END;

-- Returns the mask of a field, whose text is one item or a comma-separated list of items.
CREATE OR REPLACE FUNCTION _cron_parse_field_list(
  word text, field int, p text, n int, w int, skip int
)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  item text;
  mask bigint := 0;
BEGIN
  IF strpos(word, ',') = 0 THEN
    RETURN coalesce(
      _cron_parse_field_item(word, field), _cron_refuse_item(word, word, field, p, n, w, skip));
  END IF;
  FOREACH item IN ARRAY _split_field_list(word) LOOP
    mask := mask | coalesce(
      _look_up_word_mask(upper(item), field),
      _parse_number_range(item, field),
      _cron_parse_field_item(item, field),
      _cron_refuse_item(item, word, field, p, n, w, skip));
  END LOOP;
  RETURN mask;
END $$;

CREATE OR REPLACE FUNCTION _split_field_list(word text)
RETURNS text[]
LANGUAGE sql IMMUTABLE
RETURN CASE WHEN strpos(word, ',') = 0 THEN ARRAY[word] ELSE string_to_array(word, ',') END;

-- Returns the mask of the values from `first` to `last`. A range that runs backwards, such as
-- FRI-MON, continues at the field's lowest value; NULL if the field allows no such range.
CREATE OR REPLACE FUNCTION _make_range_mask(first int, last int, field int)
RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN CASE
  WHEN first <= last THEN ((2::bigint << last) - 1) & (-1::bigint << first)
  WHEN _cron_field_cycle_length(field) > 0 THEN
    (((2::bigint << last) - 1) | (-1::bigint << first))
      & ((2::bigint << _cron_field_max(field)) - (1::bigint << _cron_field_min(field)))
END;

-- Returns the mask of a range of numbers such as 3-7; NULL for any other item. This is fast,
-- because a list may have hundreds of ranges.
CREATE OR REPLACE FUNCTION _parse_number_range(item text, field int)
RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN CASE
  WHEN item ~ '^[0-9]{1,2}-[0-9]{1,2}$'
    AND split_part(item, '-', 1)::int BETWEEN _cron_field_min(field) AND _cron_field_max(field)
    AND split_part(item, '-', 2)::int BETWEEN _cron_field_min(field) AND _cron_field_max(field)
  THEN _make_range_mask(split_part(item, '-', 1)::int, split_part(item, '-', 2)::int, field)
END;

-- Returns the mask of an item of a list; NULL if the item is invalid. A range that runs backwards,
-- such as FRI-MON/2, continues at the field's lowest value and keeps its step.
CREATE OR REPLACE FUNCTION _cron_parse_field_item(item text, field int)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  range text := split_part(item, '/', 1);
  low text := split_part(range, '-', 1);
  first int := CASE range
    WHEN '*' THEN _cron_field_min(field)
    ELSE _parse_field_value(low, field)
  END;
  last int := CASE
    WHEN low <> range THEN _parse_field_value(substr(range, length(low) + 2), field)
    WHEN range = item AND range <> '*' THEN first
    ELSE _cron_field_max(field)
  END;
  step int := CASE range
    WHEN item THEN 1
    ELSE _parse_field_value(substr(item, length(range) + 2), 1)
  END;
  again int;
BEGIN
  IF step > 0
    AND first BETWEEN _cron_field_min(field) AND _cron_field_max(field)
    AND last BETWEEN _cron_field_min(field) AND _cron_field_max(field)
  THEN
    IF first <= last THEN
      RETURN (_make_step_mask(step) << first) & ((2::bigint << last) - 1);
    END IF;
    IF _cron_field_cycle_length(field) = 0 THEN RETURN NULL; END IF;
    -- The range begins on Sunday written as 7, so it does not run backwards: it starts at 0.
    IF first = _cron_field_min(field) + _cron_field_cycle_length(field) THEN
      RETURN (_make_step_mask(step) << _cron_field_min(field)) & ((2::bigint << last) - 1);
    END IF;
    again := _cron_field_min(field) + step - 1
      - (_cron_field_min(field) + _cron_field_cycle_length(field) - 1 - first) % step;
    RETURN (_make_step_mask(step) << first)
      & ((1::bigint << _cron_field_min(field) + _cron_field_cycle_length(field)) - 1)
      | CASE
        WHEN again <= last THEN (_make_step_mask(step) << again) & ((2::bigint << last) - 1)
        ELSE 0
      END;
  END IF;
  RETURN NULL;
END $$;

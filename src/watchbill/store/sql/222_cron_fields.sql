-- The five to seven fields: lists of numbers, names, ranges and steps. A list becomes a mask with bit n for the value n.
--
-- Fields are told by numbers: 1 second, 2 minute, 3 hour, 4 day of month, 5 month, 6 day of week, 7 year, 8 week of year; and what stands inside of
-- specials: 9 n of L-n, 10 n of d#n and dWn. What they may hold is told by expressions that PostgreSQL puts in place of the calls.

CREATE OR REPLACE FUNCTION cron_field_name(field int) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ('{second,minute,hour,day of month,month,day of week,year,week of year,day of month,day of week}'::text[])[field];

CREATE OR REPLACE FUNCTION cron_low(field int) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ('{0,0,0,1,1,0,1970,1,1,1}'::int[])[field];

CREATE OR REPLACE FUNCTION cron_high(field int) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ('{59,59,23,31,12,7,3000,53,30,5}'::int[])[field];

-- After how many values a range goes on from the lowest; 0: it may not run backwards.
CREATE OR REPLACE FUNCTION cron_cycle(field int) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN ('{60,60,24,0,12,7,0,53,0,0}'::int[])[field];

-- Names of the values from the lowest on.
CREATE OR REPLACE FUNCTION cron_names(field int) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE field WHEN 5 THEN '{JAN,FEB,MAR,APR,MAY,JUN,JUL,AUG,SEP,OCT,NOV,DEC}' WHEN 6 THEN '{SUN,MON,TUE,WED,THU,FRI,SAT}' ELSE '{}'::text[] END;

-- The numbers of a part. The modifier and the years, which are the last field and read by cron_years, are to follow from `tail` on.
CREATE OR REPLACE FUNCTION cron_fields(
  p text, n int, words text[], lo int, hi int, count int, tail int, own int, zone int, dst text, weeks bigint, modifier bigint[]
) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  m int := CASE hi - lo WHEN 4 THEN lo ELSE lo + 1 END;  -- which word the minutes are
  of_month text := words[m + 2];
  of_week text := words[m + 4];
  seconds bigint := CASE hi - lo WHEN 4 THEN 1 ELSE cron_meaning(words[lo], 1) END;
  minutes bigint := cron_meaning(words[m], 2);
  hours bigint := cron_meaning(words[m + 1], 3);
  days bigint := cron_meaning(of_month, 4);
  months bigint := cron_meaning(words[m + 3], 5);
  weekdays bigint := cron_meaning(of_week, 6);           -- bit 7 is Sunday, too
  month_specials bigint[];
  week_specials bigint[];
  plus int := 0;                                         -- + before the weekdays
  by_interval boolean := words[m] ^@ '*' OR words[m + 1] ^@ '*' OR hi - lo > 4 AND words[lo] ^@ '*';
  said int := CASE WHEN of_month = '*' OR of_month = '?' THEN 0 ELSE 2 END + CASE WHEN of_week = '*' OR of_week = '?' THEN 0 ELSE 4 END;
BEGIN
  IF hi - lo NOT BETWEEN 4 AND 6 THEN PERFORM cron_refuse_count(p, n, words, lo, hi); END IF;
  -- What is not known by heart: one item is read from here, since one call more for each field of 32 parts takes long.
  IF seconds IS NULL THEN seconds := coalesce(CASE WHEN strpos(words[lo], ',') = 0 THEN cron_item(words[lo], 1) END, cron_list(words[lo], 1, p, n, lo, 0)); END IF;
  IF minutes IS NULL THEN minutes := coalesce(CASE WHEN strpos(words[m], ',') = 0 THEN cron_item(words[m], 2) END, cron_list(words[m], 2, p, n, m, 0)); END IF;
  IF hours IS NULL THEN hours := coalesce(CASE WHEN strpos(words[m + 1], ',') = 0 THEN cron_item(words[m + 1], 3) END, cron_list(words[m + 1], 3, p, n, m + 1, 0)); END IF;
  IF days IS NULL THEN
    IF translate(of_month, '?LWlw', '') = of_month THEN
      days := cron_list(of_month, 4, p, n, m + 2, 0);
    ELSIF of_month = '?' THEN
      days := 4294967294;
    ELSE
      month_specials := cron_month_specials(of_month, p, n, m + 2);
      days := month_specials[1];
    END IF;
  END IF;
  IF weekdays IS NULL THEN
    plus := CASE WHEN of_week ^@ '+' THEN 1 ELSE 0 END;
    of_week := substr(of_week, 1 + plus);
    IF translate(of_week, '#Ll', '') <> of_week OR of_week ~ '[Ww][0-9]' THEN
      week_specials := cron_week_specials(of_week, p, n, m + 4, plus);
      weekdays := week_specials[1];
    ELSIF said < 4 THEN
      weekdays := 127;
    ELSE
      weekdays := cron_list(of_week, 6, p, n, m + 4, plus);
    END IF;
  END IF;
  IF months IS NULL THEN months := coalesce(CASE WHEN strpos(words[m + 3], ',') = 0 THEN cron_item(words[m + 3], 5) END, cron_list(words[m + 3], 5, p, n, m + 3, 0)); END IF;
  RETURN ARRAY[
    0,
    zone,
    said + by_interval::int,
    CASE WHEN zone < 0 THEN 0 WHEN dst = 'default' THEN by_interval::int WHEN dst = 'skip' THEN 2 WHEN dst = 'both' THEN 3 ELSE 0 END,
    seconds,
    minutes,
    hours,
    ((months >> 3) | (months << 9)) & 4095,
    days >> 1,
    ((weekdays | (weekdays >> 7)) & 127) * 34630287489,
    CASE WHEN said = 6 AND plus = 0 THEN 1 ELSE 0 END,
    cron_lowest(hours) * 3600 + cron_lowest(minutes) * 60 + cron_lowest(seconds),
    cron_highest(hours) * 3600 + cron_highest(minutes) * 60 + cron_highest(seconds),
    weeks,
    CASE WHEN weeks = 0 AND month_specials IS NULL AND week_specials IS NULL THEN 0 ELSE 1 END,
    coalesce(month_specials[2], 0), coalesce(month_specials[3], 0), coalesce(month_specials[4], 0),
    coalesce(week_specials[2], 0), coalesce(week_specials[3], 0), coalesce(week_specials[4], 0),
    CASE WHEN hi - lo = 6 AND words[hi] <> '*' THEN tail + coalesce(cardinality(modifier), 0) ELSE 0 END,
    CASE WHEN modifier IS NULL THEN 0 ELSE tail END,
    0, 0, count, own];
END $$;

-- The number of the highest bit of a mask of up to 62, and of the lowest. PostgreSQL puts the expressions in place of the calls.
CREATE OR REPLACE FUNCTION cron_highest(mask bigint) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN width_bucket(mask, '{1,2,4,8,16,32,64,128,256,512,1024,2048,4096,8192,16384,32768,65536,131072,262144,524288,1048576,2097152,4194304,8388608,16777216,33554432,67108864,134217728,268435456,536870912,1073741824,2147483648,4294967296,8589934592,17179869184,34359738368,68719476736,137438953472,274877906944,549755813888,1099511627776,2199023255552,4398046511104,8796093022208,17592186044416,35184372088832,70368744177664,140737488355328,281474976710656,562949953421312,1125899906842624,2251799813685248,4503599627370496,9007199254740992,18014398509481984,36028797018963968,72057594037927936,144115188075855872,288230376151711744,576460752303423488,1152921504606846976,2305843009213693952}'::bigint[]) - 1;

CREATE OR REPLACE FUNCTION cron_lowest(mask bigint) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN cron_highest(mask & -mask);

-- Every step-th bit of 62, from bit 0 on. PostgreSQL puts the expression in place of the call.
CREATE OR REPLACE FUNCTION cron_steps(step int) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(('{4611686018427387903,1537228672809129301,1317624576693539401,1229782938247303441,1190112520884487201,1171221845949812801,72624976668147841,72340172838076673,18049651735527937,1154048505100108801,36046397799139329,1153203048319815681,4504149450301441,72061992352890881,1152956690052710401,281479271743489,2251816993685505,18014467229220865,144115462954287105,1152922604119523329,4398048608257,17592190238721,70368752566273,281474993487873,1125899940397057,4503599694479361,18014398643699713,72057594306363393,288230376688582657,1152921505680588801,2147483649,4294967297,8589934593,17179869185,34359738369,68719476737,137438953473,274877906945,549755813889,1099511627777,2199023255553,4398046511105,8796093022209,17592186044417,35184372088833,70368744177665,140737488355329,281474976710657,562949953421313,1125899906842625,2251799813685249,4503599627370497,9007199254740993,18014398509481985,36028797018963969,72057594037927937,144115188075855873,288230376151711745,576460752303423489,1152921504606846977,2305843009213693953}'::bigint[])[step], 1);

-- The number that a value stands for, leading zeros or not, or a name. It may be out of bounds; NULL for what is neither. PostgreSQL puts the expression
-- in place of the call.
CREATE OR REPLACE FUNCTION cron_number(value text, field int) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN value <> '' AND translate(value, '0123456789', '') = '' THEN CASE WHEN octet_length(value) < 10 THEN value ELSE '0' || left(ltrim(value, '0'), 5) END::int
  ELSE cron_low(field) - 1 + array_position(cron_names(field), upper(value)) END;

-- A field that is not known by heart: a comma-separated list, or one item.
CREATE OR REPLACE FUNCTION cron_list(word text, field int, p text, n int, w int, skip int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  item text;
  mask bigint := 0;
BEGIN
  IF strpos(word, ',') = 0 THEN RETURN coalesce(cron_item(word, field), cron_refuse_item(word, word, field, p, n, w, skip)); END IF;
  FOREACH item IN ARRAY cron_items(word) LOOP
    mask := mask | coalesce(cron_meaning(upper(item), field), cron_range(item, field), cron_item(item, field), cron_refuse_item(item, word, field, p, n, w, skip));
  END LOOP;
  RETURN mask;
END $$;

-- The items of a list in order. PostgreSQL puts the expression in place of the call.
CREATE OR REPLACE FUNCTION cron_items(word text) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN strpos(word, ',') = 0 THEN ARRAY[word] ELSE string_to_array(word, ',') END;

-- From one value to another; across the end of the cycle, if they run backwards and there is one, else NULL.
CREATE OR REPLACE FUNCTION cron_from_to(first int, last int, field int) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
  WHEN first <= last THEN ((2::bigint << last) - 1) & (-1::bigint << first)
  WHEN cron_cycle(field) > 0 THEN (((2::bigint << last) - 1) | (-1::bigint << first)) & ((2::bigint << cron_high(field)) - (1::bigint << cron_low(field))) END;

-- A range of numbers, as a long list may have hundreds of; NULL for anything else. PostgreSQL puts the expression in place of the call.
CREATE OR REPLACE FUNCTION cron_range(item text, field int) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN item ~ '^[0-9]{1,2}-[0-9]{1,2}$' AND split_part(item, '-', 1)::int BETWEEN cron_low(field) AND cron_high(field)
    AND split_part(item, '-', 2)::int BETWEEN cron_low(field) AND cron_high(field)
  THEN cron_from_to(split_part(item, '-', 1)::int, split_part(item, '-', 2)::int, field) END;

-- Any item of a list; NULL for what is none. A range that runs backwards goes on from the lowest value, in step, where the field has a cycle.
CREATE OR REPLACE FUNCTION cron_item(item text, field int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  range text := split_part(item, '/', 1);
  low text := split_part(range, '-', 1);
  first int := CASE range WHEN '*' THEN cron_low(field) ELSE cron_number(low, field) END;
  last int := CASE WHEN low <> range THEN cron_number(substr(range, length(low) + 2), field) WHEN range = item AND range <> '*' THEN first ELSE cron_high(field) END;
  step int := CASE range WHEN item THEN 1 ELSE cron_number(substr(item, length(range) + 2), 1) END;
  again int;
BEGIN
  IF step > 0 AND first BETWEEN cron_low(field) AND cron_high(field) AND last BETWEEN cron_low(field) AND cron_high(field) THEN
    IF first <= last THEN RETURN (cron_steps(step) << first) & ((2::bigint << last) - 1); END IF;
    IF cron_cycle(field) = 0 THEN RETURN NULL; END IF;
    IF first = cron_low(field) + cron_cycle(field) THEN RETURN (cron_steps(step) << cron_low(field)) & ((2::bigint << last) - 1); END IF;     -- Sunday as 7
    again := cron_low(field) + step - 1 - (cron_low(field) + cron_cycle(field) - 1 - first) % step;
    RETURN (cron_steps(step) << first) & ((1::bigint << cron_low(field) + cron_cycle(field)) - 1)
      | CASE WHEN again <= last THEN (cron_steps(step) << again) & ((2::bigint << last) - 1) ELSE 0 END;
  END IF;
  RETURN NULL;
END $$;

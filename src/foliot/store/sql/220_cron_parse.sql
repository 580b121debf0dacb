-- From the text of a schedule to integers. The grammar and its messages are those of src/foliot/cron/parser.py; the tests compare them.
--
-- A parsed schedule, of the domain cron, is an array that can be stored beside its pattern. Each part has 27 numbers, from b = 0, 27, 54 on:
--   b + 1  kind: 0 fields, 1 @every, 2 @reboot, 3 a modifier alone        b + 2  zone, see cron_zone
--   b + 3  1: a time field begins with *, + 2: the day of month, + 4: the day of week is restricted; for explain_cron
--   b + 4  reading, see cron_trigger_after
--   b + 5  seconds   b + 6  minutes   b + 7  hours: bit n for the value n  b + 8  months: bit 0 for March
--   b + 9  days of the month, bit 0 for the 1st: all if not restricted     b + 10 weekdays, bit 0 for Sunday, in each of six lanes of 7 bits
--   b + 11 1: either day field suffices                                    b + 12 first time of a day  b + 13 last one, in seconds
--   b + 14 weeks of the year, bit n for week n; 0: no matter               b + 15 1: weeks or specials, so ask cron_month_days
--   b + 16 L-n at bit 30 - n   b + 17 L-nW at bit 30 - n   b + 18 nW at bit n - 1
--   b + 19 d#n at bit 7(n - 1) + d   b + 20 d#-n at bit 7(5 - n) + d   b + 21 dWk at bit 7(k - 1) + (d - 1) % 7
--   b + 22 where the years' masks of 62 each begin, from 1970 on; 0: all   b + 23 where the modifier begins, see cron_apply; 0: none
--   b + 24 period of @every in seconds                                     b + 25 its anchor
--   b + 26 how many parts there are                                        b + 27 the schedule's own zone
-- and behind the parts are the masks of years and the modifiers.
--
-- Only parse_cron sets the search path, which then holds for all that it calls: setting it anew in each would take a third of the time. It reads any
-- text in about a millisecond of work, which is why nothing here is looked up, no regular expression catches groups (they are slow) and where an
-- item stands is worked out for errors alone.
CREATE OR REPLACE FUNCTION parse_cron(pattern text, tz text DEFAULT 'UTC', dst text DEFAULT 'default', anchor timestamptz DEFAULT '1970-01-01 00:00:00+00')
RETURNS cron LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  p text COLLATE "C" := left(pattern, 1036);             -- as much as an error shows of a long one; a column's own collation may ignore case
  policy text COLLATE "C" := dst;
  own int := CASE WHEN tz COLLATE "C" = 'UTC' THEN -100000 WHEN octet_length(tz) <= 64 THEN coalesce(zone_number(tz), cron_zone(tz)) END;
  start bigint := CASE WHEN anchor = '1970-01-01 00:00:00+00' THEN 0 ELSE cron_seconds(anchor) END;
BEGIN
  IF policy NOT IN ('default', 'skip', 'once', 'both') THEN
    RAISE EXCEPTION 'dst is one of default, skip, once, both, not %', cron_shown(left(policy, 41)) USING ERRCODE = 'FO003';
  END IF;
  IF own IS NULL THEN PERFORM cron_refuse_zone(left(tz, 1036) COLLATE "C", 0, left(tz, 1036) COLLATE "C"); END IF;
  IF length(p) > 1000 THEN
    PERFORM cron_refuse(p, 1000, 1, 'pattern', 'has more than the 1000 characters that are allowed');
  END IF;
  -- Most patterns are one part and fields alone, which is seen from their first and last words.
  IF p > '!' AND p < '@' AND strpos(p, '|') = 0 AND strpos(p, '  ') = 0 AND strpos(p, E'\t') = 0
      AND split_part(p, ' ', -1) > '!' AND (split_part(p, ' ', -1) < '@' OR cron_extension_kind(split_part(p, ' ', -1), true) IS NULL) THEN
    RETURN cron_fields(p, 1, p, 1, 1, 28, own, own, policy, 0, NULL);
  END IF;
  RETURN cron_parts(p, own, policy, start);
END $$;

CREATE OR REPLACE FUNCTION cron_parts(p text, own int, dst text, anchor bigint) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  parts text[] := CASE p WHEN '' THEN '{""}' ELSE string_to_array(p, '|') END;
  count int := cardinality(parts);
  part bigint[];
  slots bigint[] := '{}'::bigint[];
  tail bigint[] := '{}'::bigint[];
BEGIN
  IF count > 32 THEN
    PERFORM cron_refuse(p, cron_position(p, 33, 0), length(parts[33]), 'pattern', format('has %s parts, 32 are allowed', count));
  END IF;
  FOR n IN 1 .. count LOOP
    part := cron_part(p, n, parts[n], count, 27 * count + 1 + cardinality(tail), own, dst, anchor);
    slots := slots || part[1:27];
    tail := tail || part[28:];
  END LOOP;
  RETURN slots || tail;
END $$;

-- Part n of a pattern: its numbers, and what belongs behind those of all parts, where its place is `tail`.
CREATE OR REPLACE FUNCTION cron_part(p text, n int, part text, count int, tail int, own int, dst text, anchor bigint) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  words text[] := array_remove(string_to_array(translate(part, E'\t', ' '), ' '), '');
  lo int := 1;                                           -- first and last of the words that are fields
  hi int := cardinality(words);
  ext int[];                                             -- which words are something else
  zone int := own;
  weeks bigint := 0;
  modifier bigint[];
BEGIN
  IF hi = 0 THEN
    PERFORM cron_refuse(p, cron_position(p, n, 0), length(part), 'pattern', 'there is nothing here; a schedule has 5, 6 or 7 fields');
  END IF;
  IF words[1] >= 'A' OR words[hi] >= 'A' THEN            -- letters come behind everything that a number or * begins with
    ext := cron_extension_words(p, n, words);
    lo := ext[4];
    hi := ext[5];
    IF ext[1] > 0 THEN zone := cron_parse_zone(p, n, words, ext[1]); END IF;
    IF ext[2] > 0 THEN weeks := cron_parse_weeks(p, n, words, ext[2]); END IF;
    IF ext[3] > 0 THEN modifier := cron_parse_modifier(p, n, words, ext[3]); END IF;
  END IF;
  IF lo <= hi THEN
    IF words[lo] LIKE '@%' THEN
      RETURN cron_macro(p, n, words, lo, hi, count, tail, own, zone, dst, anchor, weeks, modifier);
    END IF;
    RETURN cron_fields(p, n, array_to_string(words[lo:hi], ' '), lo, count, tail, own, zone, dst, weeks, modifier);
  ELSIF weeks <> 0 THEN
    RETURN cron_fields(p, n, '0 0 0 * * *', 1, count, tail, own, zone, dst, weeks, modifier);
  ELSIF modifier IS NULL THEN
    PERFORM cron_refuse(p, cron_position(p, n, 0), length(part), 'pattern', 'a zone alone is no schedule; it needs 5, 6 or 7 fields');
  END IF;
  RETURN ARRAY[3, zone]::bigint[] || array_fill(0::bigint, '{20}') || ARRAY[tail, 0, 0, count, own]::bigint[] || modifier;
END $$;

-- Takes zone, weeks and modifier off both ends: the number of the word that is each, or 0, then that of the first and the last that are left.
CREATE OR REPLACE FUNCTION cron_extension_words(p text, n int, words text[]) RETURNS int[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  lo int := 1;
  hi int := cardinality(words);
  found int[] := '{0,0,0}'::int[];
  kind int;
BEGIN
  LOOP
    kind := CASE WHEN lo <= hi THEN cron_extension_kind(words[lo], false) END;
    EXIT WHEN kind IS NULL;
    IF found[kind] > 0 THEN PERFORM cron_refuse_second(p, n, words, lo, kind); END IF;
    found[kind] := lo;
    lo := lo + 1;
  END LOOP;
  LOOP
    kind := CASE WHEN lo <= hi THEN cron_extension_kind(words[hi], true) END;
    EXIT WHEN kind IS NULL;
    IF found[kind] > 0 THEN PERFORM cron_refuse_second(p, n, words, hi, kind); END IF;
    found[kind] := hi;
    hi := hi - 1;
  END LOOP;
  RETURN found || ARRAY[lo, hi];
END $$;

-- Which extension a word is: 1 a zone, 2 weeks of the year, 3 a modifier; NULL if none. Behind the fields a zone needs no prefix when it has a
-- slash with a letter behind it.
CREATE OR REPLACE FUNCTION cron_extension_kind(word text, behind boolean) RETURNS int LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
  RETURN CASE
    WHEN word < 'A' THEN NULL                            -- letters come behind everything that a number or * begins with
    WHEN word ^@ 'TZ:' OR word ^@ 'TZ=' OR word ^@ 'CRON_TZ=' OR behind AND strpos(word, '/') > 0 AND word ~ '^[A-Za-z][A-Za-z0-9_+-]*/[A-Za-z]' THEN 1
    WHEN word ^@ 'WOY:' THEN 2
    WHEN word ~ '^[ES](OD:|[0-9])' THEN 3 END;
END $$;

CREATE OR REPLACE FUNCTION cron_parse_zone(p text, n int, words text[], w int) RETURNS int LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  word text := words[w];
  name text := CASE WHEN word ^@ 'TZ:' OR word ^@ 'TZ=' THEN substr(word, 4) WHEN word ^@ 'CRON_TZ=' THEN substr(word, 9) ELSE word END;
  zone int := cron_zone(name);
BEGIN
  IF zone IS NULL THEN PERFORM cron_refuse_zone(p, cron_position(p, n, w) + length(word) - length(name), name); END IF;
  RETURN zone;
END $$;

CREATE OR REPLACE FUNCTION cron_parse_weeks(p text, n int, words text[], w int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
  RETURN cron_list(substr(words[w], 5), 'week of year', 1, 53, 53, '{}', p, n, w, 4);
END $$;

-- {1 if to the end, how many steps, unit, count, unit, count, ...}. A count that leads past the year 9999 from anywhere is as good as any higher one.
CREATE OR REPLACE FUNCTION cron_parse_modifier(p text, n int, words text[], w int) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  word text := words[w];
  steps text := substr(word, CASE WHEN word ~ '^.OD:' THEN 6 ELSE 2 END);
  counts text[];
  letter text;                                           -- a unit, or the T before one
  in_time boolean := false;
  i int := 1;
  unit int;
  most bigint;
  count bigint;
  size int := 2;
  found bigint[];
BEGIN
  IF word !~ '^([ES]OD:)?[ES][0-9]+[YQMWDHmS](T?[0-9]+[YQMWDHmS])*$' THEN
    PERFORM cron_refuse(p, cron_position(p, n, w), length(word), 'modifier',
      cron_shown(word) || ' is no modifier: E or S, then numbers with a unit of Y Q M W D H m S, as in E1M2D');
  END IF;
  found := ARRAY[CASE WHEN word ~ '^(.OD:E|E[0-9])' THEN 1 ELSE 0 END, 0];
  counts := string_to_array(translate(steps, 'YQMWDHmST', ',,,,,,,,'), ',');
  FOREACH letter IN ARRAY string_to_array(translate(steps, '0123456789', ''), NULL) LOOP
    in_time := in_time OR letter = 'T';
    CONTINUE WHEN letter = 'T';
    unit := CASE WHEN in_time AND letter = 'M' THEN 2 ELSE strpos('SmHDWMQY', letter) END;
    in_time := in_time OR letter = 'H';
    most := CASE unit WHEN 1 THEN 720000000000 WHEN 2 THEN 12000000000 WHEN 3 THEN 200000000 WHEN 4 THEN 8000000 WHEN 5 THEN 1100000 WHEN 6 THEN 240000
      WHEN 7 THEN 80000 ELSE 20000 END;
    count := CASE WHEN length(counts[i]) < 16 THEN counts[i] ELSE '0' || left(ltrim(counts[i], '0'), 16) END;
    i := i + 1;
    IF size > 2 AND found[size - 1] = unit THEN          -- the same unit again: so many periods further
      found[size] := least(found[size] + count, most);
    ELSE
      found[size + 1] := unit;
      found[size + 2] := least(count, most);
      size := size + 2;
    END IF;
  END LOOP;
  found[2] := size / 2 - 1;
  RETURN found;
END $$;

-- @daily and the like, @reboot, @every 1h30m.
CREATE OR REPLACE FUNCTION cron_macro(p text, n int, words text[], lo int, hi int, count int, tail int, own int, zone int, dst text, anchor bigint, weeks bigint, modifier bigint[])
RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  name text := words[lo];
  fields text;
  slots bigint[];
BEGIN
  IF name <> '@every' AND lo < hi THEN
    PERFORM cron_refuse(p, cron_position(p, n, lo + 1), length(words[lo + 1]), 'pattern',
      format('nothing may follow %s but a zone, weeks or a modifier', cron_shown(name)));
  END IF;
  fields := CASE name WHEN '@yearly' THEN '0 0 0 1 1 *' WHEN '@annually' THEN '0 0 0 1 1 *' WHEN '@monthly' THEN '0 0 0 1 * *'
    WHEN '@weekly' THEN '0 0 0 * * 0' WHEN '@daily' THEN '0 0 0 * * *' WHEN '@midnight' THEN '0 0 0 * * *' WHEN '@hourly' THEN '0 0 * * * *'
    WHEN '@every' THEN '* * * * * *' WHEN '@reboot' THEN '* * * * * *' END;
  IF fields IS NULL THEN PERFORM cron_refuse_macro(p, cron_position(p, n, lo), name); END IF;
  slots := cron_fields(p, n, fields, lo, count, tail, own, zone, dst, weeks, modifier);
  IF name = '@reboot' THEN
    slots[1] := 2;
  ELSIF name = '@every' THEN
    slots[1] := 1;
    slots[24] := cron_duration(p, n, words, lo, hi);
    slots[25] := anchor;
  END IF;
  RETURN slots;
END $$;

-- Seconds. No run after the first would be before the year 10000 for any that is longer than 10^12.
CREATE OR REPLACE FUNCTION cron_duration(p text, n int, words text[], lo int, hi int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  wrong int := least(hi, lo + 2);
  seconds bigint;
BEGIN
  IF hi <> lo + 1 OR words[hi] !~ '^([0-9]+[dhms])+$' THEN
    PERFORM cron_refuse(p, cron_position(p, n, wrong), length(words[wrong]), 'duration', '@every takes one duration like 90s or 1h30m, of d, h, m and s');
  END IF;
  seconds := (SELECT least(sum(('0' || left(ltrim(u.count, '0'), 13))::numeric * CASE u.unit WHEN 'd' THEN 86400 WHEN 'h' THEN 3600 WHEN 'm' THEN 60 ELSE 1 END), 1000000000000)
    FROM unnest(string_to_array(rtrim(translate(words[hi], 'dhms', ',,,,'), ','), ','), string_to_array(translate(words[hi], '0123456789', ''), NULL)) u(count, unit));
  IF seconds = 0 THEN PERFORM cron_refuse(p, cron_position(p, n, hi), length(words[hi]), 'duration', '@every needs at least 1 second', '1s'); END IF;
  RETURN seconds;
END $$;

-- The five to seven fields, with one blank between; they are words lo and following of part n. What most fields are, a star, its steps or a number, is read
-- on the spot: calling another function takes longer.
CREATE OR REPLACE FUNCTION cron_fields(
  p text, n int, fields text, lo int, count int, tail int, own int, zone int, dst text, weeks bigint, modifier bigint[]
) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  size int := length(fields) - length(replace(fields, ' ', '')) + 1;
  i int := 1;                                            -- the number of the field
  w int := lo;                                           -- and of its word
  word text := split_part(fields, ' ', 1);
  seconds bigint := 1;
  minutes bigint;
  hours bigint;
  months bigint := 8190;
  by_interval boolean := false;
  of_month bigint := 2147483647;
  of_week bigint := 4398046511103;
  either int := 0;
  said int := 6;
  month_specials bigint[];
  week_specials bigint[];
  years bigint[];
BEGIN
  IF size < 5 OR size > 7 THEN PERFORM cron_refuse_count(p, n, fields, lo, size); END IF;
  IF size > 5 THEN
    seconds := CASE WHEN word = '*' THEN 1152921504606846975 WHEN word ^@ '*/' THEN CASE WHEN word ~ '^[*]/[1-9][0-9]?$' THEN cron_steps(substr(word, 3)::int) & 1152921504606846975 END
      WHEN length(word) > 2 OR translate(word, '0123456789', '') <> '' THEN NULL WHEN word::int < 60 THEN 1::bigint << word::int END;
    IF seconds IS NULL THEN seconds := cron_list(word, 'second', 0, 59, 60, '{}', p, n, w, 0); END IF;
    by_interval := word ^@ '*';
    i := 2;
    w := w + 1;
    word := split_part(fields, ' ', 2);
  END IF;
  minutes := CASE WHEN word = '*' THEN 1152921504606846975 WHEN word ^@ '*/' THEN CASE WHEN word ~ '^[*]/[1-9][0-9]?$' THEN cron_steps(substr(word, 3)::int) & 1152921504606846975 END
    WHEN length(word) > 2 OR translate(word, '0123456789', '') <> '' THEN NULL WHEN word::int < 60 THEN 1::bigint << word::int END;
  IF minutes IS NULL THEN minutes := cron_list(word, 'minute', 0, 59, 60, '{}', p, n, w, 0); END IF;
  by_interval := by_interval OR word ^@ '*';
  word := split_part(fields, ' ', i + 1);
  hours := CASE WHEN word = '*' THEN 16777215 WHEN word ^@ '*/' THEN CASE WHEN word ~ '^[*]/[1-9][0-9]?$' THEN cron_steps(substr(word, 3)::int) & 16777215 END
    WHEN length(word) > 2 OR translate(word, '0123456789', '') <> '' THEN NULL WHEN word::int < 24 THEN 1::bigint << word::int END;
  IF hours IS NULL THEN hours := cron_list(word, 'hour', 0, 23, 24, '{}', p, n, w + 1, 0); END IF;
  by_interval := by_interval OR word ^@ '*';
  word := split_part(fields, ' ', i + 2);
  IF word = '*' OR word = '?' THEN
    said := 4;
  ELSE
    either := 1;
    of_month := CASE WHEN length(word) > 2 OR translate(word, '0123456789', '') <> '' THEN NULL WHEN word::int BETWEEN 1 AND 31 THEN 1::bigint << word::int - 1 END;
    IF of_month IS NOT NULL THEN NULL;
    ELSIF translate(word, 'LWlw', '') <> word THEN
      month_specials := cron_month_specials(word, p, n, w + 2);
      of_month := month_specials[1];
    ELSE
      of_month := cron_list(word, 'day of month', 1, 31, 0, '{}', p, n, w + 2, 0) >> 1;
    END IF;
  END IF;
  word := split_part(fields, ' ', i + 4);
  IF word = '*' OR word = '?' THEN
    said := said - 4;
    either := 0;
  ELSIF word LIKE '_' AND translate(word, '0123456', '') = '' THEN
    of_week := 34630287489 << word::int;
  ELSE
    IF word LIKE '+%' THEN
      word := substr(word, 2);
      either := 0;
    END IF;
    IF word ~ '[#Ll]|[Ww][0-9]' THEN
      week_specials := cron_week_specials(word, p, n, w + 4, length(split_part(fields, ' ', i + 4)) - length(word));
      of_week := week_specials[1] * 34630287489;
    ELSE
      of_week := cron_list(word, 'day of week', 0, 7, 7, '{SUN,MON,TUE,WED,THU,FRI,SAT}', p, n, w + 4, length(split_part(fields, ' ', i + 4)) - length(word))
        * 34630287489;
    END IF;
  END IF;
  word := split_part(fields, ' ', i + 3);
  IF word <> '*' THEN
    months := CASE WHEN length(word) > 2 OR translate(word, '0123456789', '') <> '' THEN NULL WHEN word::int BETWEEN 1 AND 12 THEN 1::bigint << word::int END;
    IF months IS NULL THEN
      months := cron_list(word, 'month', 1, 12, 12, '{JAN,FEB,MAR,APR,MAY,JUN,JUL,AUG,SEP,OCT,NOV,DEC}', p, n, w + 3, 0);
    END IF;
  END IF;
  word := split_part(fields, ' ', i + 5);
  IF size = i + 5 AND word <> '*' THEN years := cron_years(word, p, n, w + 5); END IF;
  RETURN ARRAY[
    0,
    zone,
    said + by_interval::int,
    CASE WHEN zone < 0 THEN 0 WHEN dst = 'default' THEN by_interval::int WHEN dst = 'skip' THEN 2 WHEN dst = 'both' THEN 3 ELSE 0 END,
    seconds,
    minutes,
    hours,
    ((months >> 3) | (months << 9)) & 4095,
    of_month,
    of_week,
    either,
    bit_count(((hours & -hours) - 1)::bit(64)) * 3600 + bit_count(((minutes & -minutes) - 1)::bit(64)) * 60 + bit_count(((seconds & -seconds) - 1)::bit(64)),
    234304 - position(B'1' IN hours::bit(64)) * 3600 - position(B'1' IN minutes::bit(64)) * 60 - position(B'1' IN seconds::bit(64)),
    weeks,
    CASE WHEN weeks = 0 AND month_specials IS NULL AND week_specials IS NULL THEN 0 ELSE 1 END,
    coalesce(month_specials[2], 0), coalesce(month_specials[3], 0), coalesce(month_specials[4], 0),
    coalesce(week_specials[2], 0), coalesce(week_specials[3], 0), coalesce(week_specials[4], 0),
    CASE WHEN years IS NULL THEN 0 ELSE tail END,
    CASE WHEN modifier IS NULL THEN 0 WHEN years IS NULL THEN tail ELSE tail + 17 END,
    0, 0, count, own] || years || modifier;
END $$;

-- Every step-th bit of 62, from bit 0 on. PostgreSQL puts the expression in place of the call.
CREATE OR REPLACE FUNCTION cron_steps(step int) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN step < 62 THEN ('{4611686018427387903,1537228672809129301,1317624576693539401,1229782938247303441,1190112520884487201,1171221845949812801,72624976668147841,72340172838076673,18049651735527937,1154048505100108801,36046397799139329,1153203048319815681,4504149450301441,72061992352890881,1152956690052710401,281479271743489,2251816993685505,18014467229220865,144115462954287105,1152922604119523329,4398048608257,17592190238721,70368752566273,281474993487873,1125899940397057,4503599694479361,18014398643699713,72057594306363393,288230376688582657,1152921505680588801,2147483649,4294967297,8589934593,17179869185,34359738369,68719476737,137438953473,274877906945,549755813889,1099511627777,2199023255553,4398046511105,8796093022209,17592186044417,35184372088833,70368744177665,140737488355329,281474976710657,562949953421313,1125899906842625,2251799813685249,4503599627370497,9007199254740993,18014398509481985,36028797018963969,72057594037927937,144115188075855873,288230376151711745,576460752303423489,1152921504606846977,2305843009213693953}'::bigint[])[step] ELSE 1 END;

-- A comma-separated list of numbers, names, ranges and steps, as a mask with bit n for the value n. Ranges wrap around a cycle; without one
-- (0) they may not run backwards. What cannot be read at once, if only for leading zeros, is left to cron_item, which knows all errors.
CREATE OR REPLACE FUNCTION cron_list(word text, field text, low int, high int, cycle int, names text[], p text, n int, w int, skip int)
RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  top int := CASE cycle WHEN 0 THEN high ELSE low + cycle - 1 END;
  item text;
  slash int;
  dash int;
  value text;
  range int[];
  first int;
  last int;
  step int;
  row bigint;                                            -- every step-th bit, from bit 0 on
  mask bigint := 0;
BEGIN
  FOREACH item IN ARRAY CASE WHEN length(word) BETWEEN 1 AND 59 THEN string_to_array(word, ',') ELSE cron_items(word) END LOOP
    IF length(item) < 3 AND item <> '' AND translate(item, '0123456789', '') = '' THEN
      first := item;
      IF first BETWEEN low AND top THEN
        mask := mask | (1::bigint << first);
        CONTINUE;
      END IF;
    END IF;
    slash := strpos(item, '/');
    value := CASE slash WHEN 0 THEN item ELSE left(item, slash - 1) END;
    step := CASE WHEN slash = 0 THEN 1 WHEN substr(item, slash + 1) ~ '^[0-9]{1,4}$' THEN substr(item, slash + 1)::int END;
    IF value = '*' THEN
      first := low;
      last := high;
    ELSE
      dash := strpos(value, '-');
      last := CASE WHEN dash = 0 AND slash > 0 THEN high END;
      IF dash > 0 THEN
        last := CASE WHEN substr(value, dash + 1) ~ '^[0-9]{1,4}$' THEN substr(value, dash + 1)::int
          WHEN length(value) = dash + 3 THEN low - 1 + array_position(names, upper(substr(value, dash + 1))) END;
        value := left(value, dash - 1);
      END IF;
      first := CASE WHEN value ~ '^[0-9]{1,4}$' THEN value::int WHEN length(value) = 3 THEN low - 1 + array_position(names, upper(value)) END;
      IF dash = 0 AND slash = 0 THEN last := first; END IF;
    END IF;
    IF (step > 0 AND first BETWEEN low AND high AND last BETWEEN low AND high AND (first <= last OR cycle > 0)) IS NOT TRUE THEN
      range := cron_item(item, field, low, high, cycle, names, p, n, w, skip + cron_item_place(word, item));
      first := range[1];
      last := range[2];
      step := range[3];
    END IF;
    IF first > last THEN last := last + cycle; END IF;
    IF cycle > 0 AND first > top THEN                    -- 7 is Sunday again
      first := first - cycle;
      last := last - cycle;
    END IF;
    row := cron_steps(step);
    mask := mask | ((row & ((2::bigint << least(last, top) - first) - 1)) << first);
    IF last > top THEN                                   -- on from the bottom, in step
      first := first + ((top - first) / step + 1) * step - cycle;
      IF first <= last - cycle THEN mask := mask | ((row & ((2::bigint << last - cycle - first) - 1)) << first); END IF;
    END IF;
  END LOOP;
  RETURN mask;
END $$;

-- The items of an empty or a long list in order. It may say the same hundreds of times, which is heard once.
CREATE OR REPLACE FUNCTION cron_items(word text) RETURNS text[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
  RETURN CASE WHEN word = '' THEN '{""}' ELSE ARRAY(SELECT u.item FROM unnest(string_to_array(word, ',')) WITH ORDINALITY u(item, i) GROUP BY u.item ORDER BY min(u.i)) END;
END $$;

-- Where the first of such items begins, from 0 on.
CREATE OR REPLACE FUNCTION cron_item_place(word text, item text) RETURNS int LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
  RETURN strpos(',' || word || ',', ',' || item || ',') - 1;
END $$;

-- One item of a list as {first, last, step}; it begins at the given place of word w.
CREATE OR REPLACE FUNCTION cron_item(item text, field text, low int, high int, cycle int, names text[], p text, n int, w int, at int)
RETURNS int[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  slash int := strpos(item, '/');
  range text := CASE slash WHEN 0 THEN item ELSE left(item, slash - 1) END;
  dash int := strpos(range, '-');
  step int := 1;
  first int;
  last int;
BEGIN
  IF item !~ '^([*]|[0-9A-Za-z]+(-[0-9A-Za-z]+)?)(/[0-9]+)?$' THEN
    PERFORM cron_refuse_item(item, field, low, high, names, p, cron_position(p, n, w) + at);
  END IF;
  IF slash > 0 THEN
    step := CASE WHEN item ~ '/0*[0-9]{1,4}$' THEN substr(item, slash + 1)::int ELSE 10000 END;
    IF step = 0 THEN
      PERFORM cron_refuse(p, cron_position(p, n, w) + at, length(item), field, 'a step is at least 1', left(item, slash) || '1');
    END IF;
  END IF;
  IF range = '*' THEN RETURN ARRAY[low, high, step]; END IF;
  first := cron_value(CASE dash WHEN 0 THEN range ELSE left(range, dash - 1) END, field, low, high, names, p, n, w, at);
  IF dash = 0 THEN RETURN ARRAY[first, CASE slash WHEN 0 THEN first ELSE high END, step]; END IF;
  last := cron_value(substr(range, dash + 1), field, low, high, names, p, n, w, at + dash);
  IF first > last AND cycle = 0 THEN
    PERFORM cron_refuse(p, cron_position(p, n, w) + at, length(item), field, format('the range %s runs backwards', cron_shown(item)),
      CASE WHEN slash = 0 THEN format('%s-%s,%s-%s', low, last, first, high) END);
  END IF;
  RETURN ARRAY[first, last, step];
END $$;

-- A number within bounds, leading zeros or not, or a name.
CREATE OR REPLACE FUNCTION cron_value(value text, field text, low int, high int, names text[], p text, n int, w int, at int)
RETURNS int LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  number int := CASE WHEN value ~ '^0*[0-9]{1,4}$' THEN value::int END;
BEGIN
  IF number BETWEEN low AND high THEN RETURN number; END IF;
  IF value ~ '^[0-9]+$' THEN
    PERFORM cron_refuse(p, cron_position(p, n, w) + at, length(value), field, format('%s is not in %s to %s', cron_shown(value), low, high),
      CASE WHEN number = high + 1 AND number IN (24, 60) THEN '0' END);          -- 24:00, minute 60
  END IF;
  number := array_position(names, upper(value));
  IF number IS NULL THEN PERFORM cron_refuse_name(value, field, low, high, names, p, cron_position(p, n, w) + at); END IF;
  RETURN low + number - 1;
END $$;

-- The year field: 17 masks of 62 years each, from 1970 on. In between it is a bit string of them all, whose last bit is 1970.
CREATE OR REPLACE FUNCTION cron_years(word text, p text, n int, w int) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  item text;
  range int[];
  size int;                                              -- from the first to the last year of an item
  period int;
  row varbit;                                            -- every step-th bit of 1054, from the last on
  years varbit := 0::bit(1054);
BEGIN
  FOREACH item IN ARRAY CASE WHEN length(word) BETWEEN 1 AND 59 THEN string_to_array(word, ',') ELSE cron_items(word) END LOOP
    IF item ~ '^(19[7-9][0-9]|2[0-9]{3})$' THEN
      years := years | (1::bit(1054) << item::int - 1970);
      CONTINUE;
    END IF;
    range := CASE WHEN item ~ '^[*]/[1-9][0-9]{0,3}$' THEN ARRAY[1970, 3000, substr(item, 3)::int]
      ELSE cron_item(item, 'year', 1970, 3000, 0, '{}', p, n, w, CASE word WHEN item THEN 0 ELSE cron_item_place(word, item) END) END;
    size := range[2] - range[1] + 1;
    row := CASE range[3] WHEN 1 THEN ~ 0::bit(1054) ELSE cron_steps(range[3])::bit(1054) END;
    period := CASE range[3] WHEN 1 THEN size ELSE range[3] * greatest((61 + range[3]) / range[3], 1) END;
    WHILE period < size LOOP                             -- twice as many bits each time
      row := row | (row << period);
      period := period * 2;
    END LOOP;
    years := years | (((row << 1054 - size) >> 1054 - size) << range[1] - 1970);
  END LOOP;
  RETURN ARRAY[                                          -- written out, as a loop would take longer than all the rest
    substring(years FROM 993 FOR 62)::bit(62)::bigint, substring(years FROM 931 FOR 62)::bit(62)::bigint, substring(years FROM 869 FOR 62)::bit(62)::bigint,
    substring(years FROM 807 FOR 62)::bit(62)::bigint, substring(years FROM 745 FOR 62)::bit(62)::bigint, substring(years FROM 683 FOR 62)::bit(62)::bigint,
    substring(years FROM 621 FOR 62)::bit(62)::bigint, substring(years FROM 559 FOR 62)::bit(62)::bigint, substring(years FROM 497 FOR 62)::bit(62)::bigint,
    substring(years FROM 435 FOR 62)::bit(62)::bigint, substring(years FROM 373 FOR 62)::bit(62)::bigint, substring(years FROM 311 FOR 62)::bit(62)::bigint,
    substring(years FROM 249 FOR 62)::bit(62)::bigint, substring(years FROM 187 FOR 62)::bit(62)::bigint, substring(years FROM 125 FOR 62)::bit(62)::bigint,
    substring(years FROM 63 FOR 62)::bit(62)::bigint, substring(years FROM 1 FOR 62)::bit(62)::bigint];
END $$;

-- {plain days, L-n, L-nW, nW} of a day-of-month field with specials.
CREATE OR REPLACE FUNCTION cron_month_specials(word text, p text, n int, w int) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  item text;
  digits text;
  days bigint := 0;
  lasts bigint := 0;
  last_workdays bigint := 0;
  workdays bigint := 0;
  number int;
BEGIN
  FOREACH item IN ARRAY CASE WHEN length(word) BETWEEN 1 AND 59 THEN string_to_array(word, ',') ELSE cron_items(word) END LOOP
    IF item ~ '^L(-[0-9]+)?W?$' THEN
      digits := translate(item, 'L-W', '');
      number := CASE WHEN digits = '' THEN 0 WHEN digits ~ '^([1-9]|[12][0-9]|30)$' THEN digits::int
        ELSE cron_value(digits, 'day of month', 1, 30, '{}', p, n, w, cron_item_place(word, item) + 2) END;
      IF item LIKE '%W' THEN last_workdays := last_workdays | (1073741824 >> number); ELSE lasts := lasts | (1073741824 >> number); END IF;
    ELSIF item ~ '^[0-9]+W$' THEN
      digits := rtrim(item, 'W');
      number := CASE WHEN digits ~ '^([1-9]|[12][0-9]|3[01])$' THEN digits::int
        ELSE cron_value(digits, 'day of month', 1, 31, '{}', p, n, w, cron_item_place(word, item)) END;
      workdays := workdays | (1::bigint << number - 1);
    ELSE
      IF item ~ '[lw]' AND upper(item) ~ '^(L(-[0-9]+)?W?|[0-9]+W)$' THEN
        PERFORM cron_refuse_small(item, 'day of month', p, cron_position(p, n, w) + cron_item_place(word, item));
      END IF;
      days := days | (cron_list(item, 'day of month', 1, 31, 0, '{}', p, n, w, cron_item_place(word, item)) >> 1);
    END IF;
  END LOOP;
  RETURN ARRAY[days, lasts, last_workdays, workdays];
END $$;

-- {plain weekdays, d#n, d#-n, dWk} of a day-of-week field with specials.
CREATE OR REPLACE FUNCTION cron_week_specials(word text, p text, n int, w int, skip int) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  item text;
  weekdays bigint := 0;
  nth bigint := 0;
  nth_last bigint := 0;
  rows bigint := 0;
  mark int;                                              -- where the digits behind the weekday begin, a sign left out
  value text;
  day int;
  number int;
BEGIN
  FOREACH item IN ARRAY CASE WHEN length(word) BETWEEN 1 AND 59 THEN string_to_array(word, ',') ELSE cron_items(word) END LOOP
    IF item ~ '^([0-9]+|[A-Za-z]{3})(#?L|#-?[0-9]+|W[0-9]+)$' THEN
      mark := CASE WHEN item >= 'A' THEN 4 ELSE length(item) - length(ltrim(item, '0123456789')) + 1 END;
      value := left(item, mark - 1);
      day := CASE WHEN value BETWEEN '0' AND '7' AND length(value) = 1 THEN value::int
        ELSE cron_value(value, 'day of week', 0, 7, '{SUN,MON,TUE,WED,THU,FRI,SAT}', p, n, w, skip + cron_item_place(word, item)) END;
      IF item LIKE '%L' THEN
        nth_last := nth_last | (1::bigint << 28 + day % 7);
        CONTINUE;
      END IF;
      IF day = 7 AND substr(item, mark, 1) = 'W' THEN
        PERFORM cron_refuse(p, cron_position(p, n, w) + skip + cron_item_place(word, item), length(item), 'day of week', 'in a row of the month Sunday is 0, not 7',
          '0' || substr(item, mark));
      END IF;
      value := ltrim(substr(item, mark + 1), '-');
      number := CASE WHEN value BETWEEN '1' AND '5' AND length(value) = 1 THEN value::int
        ELSE cron_value(value, 'day of week', 1, 5, '{}', p, n, w, skip + cron_item_place(word, item) + length(item) - length(value)) END;
      IF substr(item, mark, 1) = 'W' THEN
        rows := rows | (1::bigint << 7 * (number - 1) + (day + 6) % 7);
      ELSIF substr(item, mark + 1, 1) = '-' THEN
        nth_last := nth_last | (1::bigint << 7 * (5 - number) + day % 7);
      ELSE
        nth := nth | (1::bigint << 7 * (number - 1) + day % 7);
      END IF;
    ELSE
      IF item ~ '[a-z]' AND upper(item) ~ '^([0-9]+|[A-Z]{3})(#?L|#-?[0-9]+|W[0-9]+)$' THEN
        PERFORM cron_refuse_small(item, 'day of week', p, cron_position(p, n, w) + skip + cron_item_place(word, item));
      END IF;
      weekdays := weekdays | cron_list(item, 'day of week', 0, 7, 7, '{SUN,MON,TUE,WED,THU,FRI,SAT}', p, n, w, skip + cron_item_place(word, item));
    END IF;
  END LOOP;
  RETURN ARRAY[weekdays, nth, nth_last, rows];
END $$;

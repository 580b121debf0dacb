-- From the text of a schedule to integers. The grammar and its messages are those of src/watchbill/cron/parser.py; the tests compare them.
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
--   b + 22 where the years begin, see cron_years; 0: all                   b + 23 where the modifier begins, see cron_apply; 0: none
--   b + 24 period of @every in seconds                                     b + 25 its anchor
--   b + 26 how many parts there are                                        b + 27 the schedule's own zone
-- and behind the parts are the modifiers and the years.
--
-- Only parse_cron sets the search path, which then holds for all that it calls: setting it anew in each would take a third of the time. It reads any
-- text within a millisecond of work, which is why no table is read, what short words mean is looked up in constants (224_cron_words.sql), no regular
-- expression catches groups (they are slow), and where an item stands is worked out for errors alone. An expression costs most when it is evaluated for
-- the first time in a transaction, each function in it as much as ten calls of that: so what is seldom needed is in a function of its own.
CREATE OR REPLACE FUNCTION parse_cron(pattern text, tz text DEFAULT 'UTC', dst text DEFAULT 'default', anchor timestamptz DEFAULT '1970-01-01 00:00:00+00')
RETURNS cron LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  p text COLLATE "C" := left(pattern, 1036);             -- as much as an error shows of a long one; a column's own collation may ignore case
  policy text COLLATE "C" := dst;
  own int := CASE WHEN tz COLLATE "C" = 'UTC' THEN -100000 WHEN octet_length(tz) <= 64 THEN coalesce(zone_number(tz), cron_zone(tz)) END;
  words text[];
  last text COLLATE "C";
  start bigint := CASE WHEN anchor = '1970-01-01 00:00:00+00' THEN 0 ELSE cron_seconds(anchor) END;
BEGIN
  IF policy NOT IN ('default', 'skip', 'once', 'both') THEN
    RAISE EXCEPTION 'dst is one of default, skip, once, both, not %', cron_shown(left(policy, 41)) USING ERRCODE = 'WB003';
  END IF;
  IF own IS NULL THEN PERFORM cron_refuse_zone(left(tz, 1036) COLLATE "C", 0, left(tz, 1036) COLLATE "C"); END IF;
  IF length(p) > 1000 THEN
    PERFORM cron_refuse(p, 1000, 1, 'pattern', 'has more than the 1000 characters that are allowed');
  END IF;
  -- Most patterns are one part and fields alone, which is seen from their first and last words.
  IF p > '!' AND p < '@' AND strpos(p, '|') = 0 AND strpos(p, '  ') = 0 AND strpos(p, E'\t') = 0 THEN
    words := string_to_array(p, ' ');
    last := words[cardinality(words)];
    IF last > '!' AND (last < '@' OR cron_extension_kind(last, true) IS NULL) THEN
      RETURN cron_fields(p, 1, words, 1, cardinality(words), 1, 28, own, own, policy, 0, NULL) || CASE WHEN cardinality(words) = 7 AND last <> '*' THEN cron_years(last, p, 1, 7) END;
    END IF;
  END IF;
  RETURN cron_parts(p, own, policy, start);
END $$;

CREATE OR REPLACE FUNCTION cron_parts(p text, own int, dst text, anchor bigint) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  parts text[] := CASE p WHEN '' THEN '{""}' ELSE string_to_array(replace(p, E'\t', ' '), '|') END;
  count int := cardinality(parts);
  words text[];
  part bigint[];
  slots bigint[] := '{}'::bigint[];
  tail bigint[] := '{}'::bigint[];
BEGIN
  IF count > 32 THEN
    PERFORM cron_refuse(p, cron_position(p, 33, 0), length(parts[33]), 'pattern', format('has %s parts, 32 are allowed', count));
  END IF;
  FOR n IN 1 .. count LOOP
    words := string_to_array(parts[n], ' ');
    IF '' = ANY (words) THEN words := array_remove(words, ''); END IF;
    IF words[1] < '@' AND words[cardinality(words)] < '@' THEN       -- fields alone: letters come behind everything that a number or * begins with
      slots := slots || cron_fields(p, n, words, 1, cardinality(words), count, 27 * count + 1 + cardinality(tail), own, own, dst, 0, NULL);
      IF cardinality(words) = 7 AND words[7] <> '*' THEN tail := tail || cron_years(words[7], p, n, 7); END IF;
    ELSE
      part := cron_part(p, n, words, length(parts[n]), count, 27 * count + 1 + cardinality(tail), own, dst, anchor);
      slots := slots || part[:27];
      IF cardinality(part) > 27 THEN tail := tail || part[28:]; END IF;
    END IF;
  END LOOP;
  RETURN slots || tail;
END $$;

-- Part n of a pattern, of so many characters: its numbers, and what belongs behind those of all parts, where its place is `tail`. Zone, weeks and modifier
-- are taken off both ends of its words; the fields are what is left.
CREATE OR REPLACE FUNCTION cron_part(p text, n int, words text[], size int, count int, tail int, own int, dst text, anchor bigint) RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  lo int := 1;
  hi int := cardinality(words);
  word text;
  kind int;
  found int[] := '{0,0,0}'::int[];                       -- which words they are
  zone int := own;
  weeks bigint := 0;
  modifier bigint[];
BEGIN
  IF hi = 0 THEN
    PERFORM cron_refuse(p, cron_position(p, n, 0), size, 'pattern', 'there is nothing here; a schedule has 5, 6 or 7 fields');
  END IF;
  WHILE lo <= hi LOOP
    word := words[lo];
    kind := cron_extension_kind(word, false);
    EXIT WHEN kind IS NULL;
    IF found[kind] > 0 THEN PERFORM cron_refuse_second(p, n, words, lo, kind); END IF;
    found[kind] := lo;
    lo := lo + 1;
  END LOOP;
  WHILE lo <= hi LOOP
    word := words[hi];
    kind := cron_extension_kind(word, true);
    EXIT WHEN kind IS NULL;
    IF found[kind] > 0 THEN PERFORM cron_refuse_second(p, n, words, hi, kind); END IF;
    found[kind] := hi;
    hi := hi - 1;
  END LOOP;
  IF found[1] > 0 THEN
    word := cron_zone_name(words[found[1]]);
    zone := cron_zone(word);
    IF zone IS NULL THEN PERFORM cron_refuse_zone(p, cron_position(p, n, found[1]) + length(words[found[1]]) - length(word), word); END IF;
  END IF;
  IF found[2] > 0 THEN weeks := cron_parse_weeks(p, n, words, found[2]); END IF;
  IF found[3] > 0 THEN
    word := words[found[3]];
    modifier := coalesce(cron_simple_modifier(word), cron_parse_modifier(p, n, words, found[3]));
  END IF;
  IF lo <= hi THEN
    IF words[lo] LIKE '@%' THEN
      RETURN cron_macro(p, n, words, lo, hi, count, tail, own, zone, dst, anchor, weeks, modifier);
    END IF;
    RETURN cron_fields(p, n, words, lo, hi, count, tail, own, zone, dst, weeks, modifier) || modifier
      || CASE WHEN hi - lo = 6 AND words[hi] <> '*' THEN cron_years(words[hi], p, n, hi) END;
  ELSIF weeks <> 0 THEN
    RETURN cron_fields(p, n, '{0,0,0,*,*,*}', 1, 6, count, tail, own, zone, dst, weeks, modifier) || modifier;
  ELSIF modifier IS NULL THEN
    PERFORM cron_refuse(p, cron_position(p, n, 0), size, 'pattern', 'a zone alone is no schedule; it needs 5, 6 or 7 fields');
  END IF;
  RETURN ARRAY[3, zone, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, tail, 0, 0, count, own]::bigint[] || modifier;
END $$;

-- @daily and the like, @reboot, @every 1h30m.
CREATE OR REPLACE FUNCTION cron_macro(p text, n int, words text[], lo int, hi int, count int, tail int, own int, zone int, dst text, anchor bigint, weeks bigint, modifier bigint[])
RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  name text := words[lo];
  fields text[];
  slots bigint[];
BEGIN
  IF name = '@every' THEN                                -- with the fields * * * * * *
    RETURN ARRAY[
      1, zone, 1, CASE WHEN zone < 0 THEN 0 WHEN dst = 'default' THEN 1 WHEN dst = 'skip' THEN 2 WHEN dst = 'both' THEN 3 ELSE 0 END,
      1152921504606846975, 1152921504606846975, 16777215, 4095, 2147483647, 4398046511103, 0, 0, 86399, weeks, CASE weeks WHEN 0 THEN 0 ELSE 1 END, 0, 0, 0, 0, 0, 0,
      0, CASE WHEN modifier IS NULL THEN 0 ELSE tail END, cron_duration(p, n, words, lo, hi), anchor, count, own] || modifier;
  ELSIF lo < hi THEN
    PERFORM cron_refuse(p, cron_position(p, n, lo + 1), length(words[lo + 1]), 'pattern',
      format('nothing may follow %s but a zone, weeks or a modifier', cron_shown(name)));
  END IF;
  fields := CASE name WHEN '@yearly' THEN '{0,0,0,1,1,*}' WHEN '@annually' THEN '{0,0,0,1,1,*}' WHEN '@monthly' THEN '{0,0,0,1,*,*}'
    WHEN '@weekly' THEN '{0,0,0,*,*,0}' WHEN '@daily' THEN '{0,0,0,*,*,*}' WHEN '@midnight' THEN '{0,0,0,*,*,*}' WHEN '@hourly' THEN '{0,0,*,*,*,*}'
    WHEN '@reboot' THEN '{*,*,*,*,*,*}' END;
  IF fields IS NULL THEN PERFORM cron_refuse_macro(p, cron_position(p, n, lo), name); END IF;
  slots := cron_fields(p, n, fields, 1, 6, count, tail, own, zone, dst, weeks, modifier);
  IF name = '@reboot' THEN slots[1] := 2; END IF;
  RETURN slots || modifier;
END $$;

-- Seconds. No run after the first would be before the year 10000 for any that is longer than 10^12.
CREATE OR REPLACE FUNCTION cron_duration(p text, n int, words text[], lo int, hi int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  wrong int := least(hi, lo + 2);
  steps text;                                            -- a count, the seconds of its unit, a count, ... as an array is written
  found bigint[];
  seconds bigint := 0;
BEGIN
  IF hi <> lo + 1 OR words[hi] !~ '^([0-9]+[dhms])+$' THEN
    PERFORM cron_refuse(p, cron_position(p, n, wrong), length(words[wrong]), 'duration', '@every takes one duration like 90s or 1h30m, of d, h, m and s');
  END IF;
  steps := rtrim(replace(replace(replace(replace(words[hi], 'd', ',86400,'), 'h', ',3600,'), 'm', ',60,'), 's', ',1,'), ',');
  IF steps ~ '[0-9]{13}' THEN steps := regexp_replace(regexp_replace(steps, E'\\m0+([0-9])', E'\\1', 'g'), '[0-9]{13,}', '1000000000000', 'g'); END IF;
  found := ('{' || steps || '}')::bigint[];
  FOR i IN 1 .. cardinality(found) BY 2 LOOP
    seconds := seconds + found[i] * found[i + 1];
  END LOOP;
  IF seconds = 0 THEN PERFORM cron_refuse(p, cron_position(p, n, hi), length(words[hi]), 'duration', '@every needs at least 1 second', '1s'); END IF;
  RETURN least(seconds, 1000000000000);
END $$;

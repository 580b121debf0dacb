-- Parses a pattern into an array of numbers. src/watchbill/cron/parser.py parses the same grammar
-- in Python, and tests compare the two.
--
-- The private functions take these arguments: p is the pattern, n the number of a part, words the
-- words of that part, lo and hi the positions of the first and the last field among them, w the
-- position of one word, count how many parts there are, tail where in the result the modifier and
-- the years of the part begin, own the schedule's zone.
--
-- Two things make it fast: only parse_cron() sets the search path, and rare cases have functions of
-- their own, because PostgreSQL takes long for the first evaluation of an expression.
CREATE OR REPLACE FUNCTION parse_cron(
  pattern text,
  tz text DEFAULT 'UTC',
  dst text DEFAULT 'default',
  anchor timestamptz DEFAULT '1970-01-01 00:00:00+00'
)
RETURNS cron
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  -- Keeps one character more than is allowed, so that a pattern that is too long is noticed. Uses
  -- the collation "C", because the collation of a column may ignore case.
  p text COLLATE "C" := left(pattern, 1001);
  policy text COLLATE "C" := dst;
  own int := CASE
    WHEN tz COLLATE "C" = 'UTC' THEN -100000
    WHEN octet_length(tz) <= 64 THEN coalesce(_find_zone_number(tz), _parse_zone(tz))
  END;
  words text[];
  last text COLLATE "C";
  start bigint := CASE
    WHEN anchor = '1970-01-01 00:00:00+00' THEN 0
    ELSE _cron_to_seconds(anchor)
  END;
BEGIN
  IF policy NOT IN ('default', 'skip', 'once', 'both') THEN
    RAISE EXCEPTION 'dst must be default, skip, once or both, not %', _quote_excerpt(policy)
      USING ERRCODE = 'WB003';
  END IF;
  IF own IS NULL THEN
    PERFORM _cron_refuse_zone(left(tz, 65) COLLATE "C", 0, left(tz, 65) COLLATE "C");
  END IF;
  IF length(p) > 1000 THEN
    PERFORM _cron_refuse_pattern(
      p, 1000, 'pattern', 'has more than the 1000 characters that are allowed');
  END IF;
  -- Handles the usual pattern here: one part that has only fields.
  IF p > '!'
    AND p < '@'
    AND strpos(p, '|') = 0
    AND strpos(p, '  ') = 0
    AND strpos(p, E'\t') = 0
  THEN
    words := string_to_array(p, ' ');
    last := words[cardinality(words)];
    IF last > '!' AND (last < '@' OR _classify_pattern_extension(last, true) IS NULL) THEN
      RETURN
        _cron_parse_fields(p, 1, words, 1, cardinality(words), 1, 28, own, own, policy, 0, NULL)
        || CASE
          WHEN cardinality(words) = 7 AND last <> '*' THEN _cron_parse_years(last, p, 1, 7)
        END;
    END IF;
  END IF;
  RETURN _cron_parse_parts(p, own, policy, start);
END $$;

-- Parses a pattern with several parts, or with a part that has more than fields.
CREATE OR REPLACE FUNCTION _cron_parse_parts(p text, own int, dst text, anchor bigint)
RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  parts text[] := CASE p
    WHEN '' THEN '{""}'
    ELSE string_to_array(replace(p, E'\t', ' '), '|')
  END;
  count int := cardinality(parts);
  words text[];
  part bigint[];
  slots bigint[] := '{}'::bigint[];
  tail bigint[] := '{}'::bigint[];
BEGIN
  IF count > 32 THEN
    PERFORM _cron_refuse_pattern(
      p,
      _cron_find_word_position(p, 33, 0),
      'pattern',
      format('has %s parts, 32 are allowed', count));
  END IF;
  FOR n IN 1 .. count LOOP
    words := string_to_array(parts[n], ' ');
    IF '' = ANY (words) THEN words := array_remove(words, ''); END IF;
    -- A part without a letter at either end has only fields.
    IF words[1] < '@' AND words[cardinality(words)] < '@' THEN
      slots := slots || _cron_parse_fields(
        p, n, words, 1, cardinality(words), count, 27 * count + 1 + cardinality(tail), own, own,
        dst, 0, NULL);
      IF cardinality(words) = 7 AND words[7] <> '*' THEN
        tail := tail || _cron_parse_years(words[7], p, n, 7);
      END IF;
    ELSE
      part := _cron_parse_part(
        p, n, words, count, 27 * count + 1 + cardinality(tail), own, dst, anchor);
      slots := slots || part[:27];
      IF cardinality(part) > 27 THEN tail := tail || part[28:]; END IF;
    END IF;
  END LOOP;
  RETURN slots || tail;
END $$;

-- Parses a part. Returns its 27 numbers, then its modifier and its years. Takes the zone, the weeks
-- and the modifier off both ends of its words; the remaining words are the fields.
CREATE OR REPLACE FUNCTION _cron_parse_part(
  p text, n int, words text[], count int, tail int, own int, dst text, anchor bigint
)
RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  lo int := 1;
  hi int := cardinality(words);
  word text;
  kind int;
  -- The positions of the words that are the zone, the weeks and the modifier; 0 if there is none.
  found int[] := '{0,0,0}'::int[];
  zone int := own;
  weeks bigint := 0;
  modifier bigint[];
BEGIN
  IF hi = 0 THEN
    PERFORM _cron_refuse_pattern(
      p,
      _cron_find_word_position(p, n, 0),
      'pattern',
      'there is nothing here; a schedule has 5, 6 or 7 fields');
  END IF;
  WHILE lo <= hi LOOP
    word := words[lo];
    kind := _classify_pattern_extension(word, false);
    EXIT WHEN kind IS NULL;
    IF found[kind] > 0 THEN PERFORM _cron_refuse_second_extension(p, n, words, lo, kind); END IF;
    found[kind] := lo;
    lo := lo + 1;
  END LOOP;
  WHILE lo <= hi LOOP
    word := words[hi];
    kind := _classify_pattern_extension(word, true);
    EXIT WHEN kind IS NULL;
    IF found[kind] > 0 THEN PERFORM _cron_refuse_second_extension(p, n, words, hi, kind); END IF;
    found[kind] := hi;
    hi := hi - 1;
  END LOOP;
  IF found[1] > 0 THEN
    word := _strip_zone_prefix(words[found[1]]);
    zone := _parse_zone(word);
    IF zone IS NULL THEN
      PERFORM _cron_refuse_zone(
        p,
        _cron_find_word_position(p, n, found[1]) + length(words[found[1]]) - length(word),
        word);
    END IF;
  END IF;
  IF found[2] > 0 THEN weeks := _cron_parse_weeks(p, n, words, found[2]); END IF;
  IF found[3] > 0 THEN
    word := words[found[3]];
    modifier := coalesce(_parse_simple_modifier(word), _cron_parse_modifier(p, n, words, found[3]));
  END IF;
  IF lo <= hi THEN
    IF words[lo] LIKE '@%' THEN
      RETURN _cron_parse_macro(
        p, n, words, lo, hi, count, tail, own, zone, dst, anchor, weeks, modifier);
    END IF;
    RETURN
      _cron_parse_fields(p, n, words, lo, hi, count, tail, own, zone, dst, weeks, modifier)
      || modifier
      || CASE WHEN hi - lo = 6 AND words[hi] <> '*' THEN _cron_parse_years(words[hi], p, n, hi) END;
  ELSIF weeks <> 0 THEN
    RETURN
      _cron_parse_fields(p, n, '{0,0,0,*,*,*}', 1, 6, count, tail, own, zone, dst, weeks, modifier)
      || modifier;
  ELSIF modifier IS NULL THEN
    PERFORM _cron_refuse_pattern(
      p,
      _cron_find_word_position(p, n, 0),
      'pattern',
      'a zone alone is not a schedule; it needs 5, 6 or 7 fields');
  END IF;
  -- The part consists of a modifier alone.
  RETURN ARRAY[
    3, zone, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, tail, 0, 0, count, own
  ]::bigint[] || modifier;
END $$;

-- Parses a macro: @daily and the like, @reboot, or @every 1h30m.
CREATE OR REPLACE FUNCTION _cron_parse_macro(
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
  anchor bigint,
  weeks bigint,
  modifier bigint[]
)
RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  macros constant text[]
    := '{@yearly,@annually,@monthly,@weekly,@daily,@midnight,@hourly,@reboot,@every}';
  name text := words[lo];
  fields text[];
  part bigint[];
BEGIN
  IF lo < hi AND name <> '@every' THEN
    PERFORM _cron_refuse_pattern(
      p,
      _cron_find_word_position(p, n, lo + 1),
      'pattern',
      format('nothing may follow %s but a zone, weeks or a modifier', _quote_excerpt(name)));
  END IF;
  fields := CASE name
    WHEN '@yearly' THEN '{0,0,0,1,1,*}'
    WHEN '@annually' THEN '{0,0,0,1,1,*}'
    WHEN '@monthly' THEN '{0,0,0,1,*,*}'
    WHEN '@weekly' THEN '{0,0,0,*,*,0}'
    WHEN '@daily' THEN '{0,0,0,*,*,*}'
    WHEN '@midnight' THEN '{0,0,0,*,*,*}'
    WHEN '@hourly' THEN '{0,0,*,*,*,*}'
    WHEN '@reboot' THEN '{*,*,*,*,*,*}'
    WHEN '@every' THEN '{*,*,*,*,*,*}'
  END;
  IF fields IS NULL THEN
    PERFORM _cron_refuse_pattern(
      p,
      _cron_find_word_position(p, n, lo),
      'pattern',
      format('%s is not one of %s', _quote_excerpt(name), array_to_string(macros, ', ')),
      (SELECT m FROM unnest(macros) m WHERE left(m, 3) = lower(left(name, 3)) LIMIT 1));
  END IF;
  part := _cron_parse_fields(p, n, fields, 1, 6, count, tail, own, zone, dst, weeks, modifier);
  -- Sets elements 1 to 3 (the kind, the zone, and 0 because the schedule is not simple), and for
  -- @every elements 24 and 25 (its period and its anchor).
  IF name = '@reboot' THEN
    part[1:3] := ARRAY[2, zone, 0];
  ELSIF name = '@every' THEN
    part[1:3] := ARRAY[1, zone, 0];
    part[24:25] := ARRAY[_cron_parse_duration(p, n, words, lo, hi), anchor];
  END IF;
  RETURN part || modifier;
END $$;

-- Parses the duration of @every into seconds, at most 10^12: a longer period would reach past the
-- year 9999.
CREATE OR REPLACE FUNCTION _cron_parse_duration(p text, n int, words text[], lo int, hi int)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  wrong int := least(hi, lo + 2);
  -- The text of an array: a count, the seconds of its unit, the next count, and so on.
  steps text;
  found bigint[];
  seconds bigint := 0;
BEGIN
  IF hi <> lo + 1 OR words[hi] !~ '^([0-9]+[dhms])+$' THEN
    PERFORM _cron_refuse_pattern(
      p,
      _cron_find_word_position(p, n, wrong),
      'duration',
      '@every takes one duration like 90s or 1h30m, of d, h, m and s');
  END IF;
  steps := rtrim(
    replace(replace(replace(replace(
      words[hi], 'd', ',86400,'), 'h', ',3600,'), 'm', ',60,'), 's', ',1,'),
    ',');
  IF steps ~ '[0-9]{13}' THEN
    steps := regexp_replace(
      regexp_replace(steps, E'\\m0+([0-9])', E'\\1', 'g'),
      '[0-9]{13,}', '1000000000000', 'g');
  END IF;
  found := ('{' || steps || '}')::bigint[];
  FOR i IN 1 .. cardinality(found) BY 2 LOOP
    seconds := seconds + found[i] * found[i + 1];
  END LOOP;
  IF seconds = 0 THEN
    PERFORM _cron_refuse_pattern(
      p, _cron_find_word_position(p, n, hi), 'duration', '@every needs at least 1 second', '1s');
  END IF;
  RETURN least(seconds, 1000000000000);
END $$;

-- Says which extension a word is: 1 a zone, 2 weeks of the year, 3 a modifier; NULL for any other
-- word. If the word stands after the fields (`behind`), a zone such as Europe/Paris needs no
-- prefix.
CREATE OR REPLACE FUNCTION _classify_pattern_extension(word text, behind boolean)
RETURNS int
LANGUAGE sql IMMUTABLE
RETURN CASE
  -- Digits and * sort before letters, and no extension begins with them.
  WHEN word < 'A' THEN NULL
  WHEN word ^@ 'TZ:'
    OR word ^@ 'TZ='
    OR word ^@ 'CRON_TZ='
    OR behind AND strpos(word, '/') > 0 AND word ~ '^[A-Za-z][A-Za-z0-9_+-]*/[A-Za-z]'
  THEN 1
  WHEN word ^@ 'WOY:' THEN 2
  WHEN word ~ '^[ES](OD:|[0-9])' THEN 3
END;

CREATE OR REPLACE FUNCTION _strip_zone_prefix(word text)
RETURNS text
LANGUAGE sql IMMUTABLE
RETURN CASE
  WHEN word ^@ 'TZ:' OR word ^@ 'TZ=' THEN substr(word, 4)
  WHEN word ^@ 'CRON_TZ=' THEN substr(word, 9)
  ELSE word
END;

-- Parses the weeks of the year, such as WOY:1-26, into a mask.
CREATE OR REPLACE FUNCTION _cron_parse_weeks(p text, n int, words text[], w int)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  list text := substr(words[w], 5);
BEGIN
  RETURN coalesce(_look_up_word_mask(list, 8), _cron_parse_field_list(list, 8, p, n, w, 4));
END $$;

-- Parses a modifier of one step such as E1M, the usual kind; NULL for any other modifier.
CREATE OR REPLACE FUNCTION _parse_simple_modifier(word text)
RETURNS bigint[]
LANGUAGE sql IMMUTABLE
RETURN CASE
  WHEN word ~ '^[ES][0-9]{1,4}[YQMWDHmS]$' THEN ARRAY[
    (word ^@ 'E')::int,
    1,
    substr(word, 2, length(word) - 2)::int,
    strpos('SmHDWMQY', right(word, 1))]
END;

-- Parses a modifier with several steps. Returns 1 for E (the end of a period) or 0 for S, the
-- number of steps, and then the count and the unit of each step. Units count from 1 for S up to 8
-- for Y. An M after H or T means m, minutes. A huge count is reduced to one that still leads past
-- the year 9999.
CREATE OR REPLACE FUNCTION _cron_parse_modifier(p text, n int, words text[], w int)
RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  word text := words[w];
  colon int := strpos(word, ':');
  steps text := substr(word, colon + 2);
  -- The position of the first H or T, after which M means minutes.
  time int;
  most constant bigint[]
    := '{720000000000,12000000000,200000000,8000000,1100000,240000,80000,20000}';
  found text[];
BEGIN
  IF word !~ '^([ES]OD:)?[ES][0-9]+[YQMWDHmS](T?[0-9]+[YQMWDHmS])*$' THEN
    PERFORM _cron_refuse_pattern(
      p,
      _cron_find_word_position(p, n, w),
      'modifier',
      _quote_excerpt(word)
        || ' is not a modifier: E or S, then numbers with a unit of Y Q M W D H m S, as in E1M2D');
  END IF;
  IF steps ~ '[HT].*M' THEN
    time := strpos(translate(steps, 'T', 'H'), 'H');
    steps := left(steps, time) || translate(substr(steps, time + 1), 'M', 'm');
  END IF;
  -- Makes the text of an array by replacing letters, because a loop would be slow.
  steps := replace(replace(replace(replace(replace(
    steps, 'S', ',1,'), 'm', ',2,'), 'H', ',3,'), 'D', ',4,'), 'W', ',5,');
  steps := rtrim(
    replace(replace(replace(replace(steps, 'M', ',6,'), 'Q', ',7,'), 'Y', ',8,'), 'T', ''),
    ',');
  -- A count needs ten digits or more to overflow.
  IF steps ~ '[0-9]{10}' THEN
    found := string_to_array(steps, ',');
    FOR i IN 1 .. cardinality(found) BY 2 LOOP
      found[i] := least(most[found[i + 1]::int], ('0' || left(ltrim(found[i], '0'), 16))::bigint);
    END LOOP;
    steps := array_to_string(found, ',');
  END IF;
  RETURN
    ARRAY[
      (substr(word, colon + 1, 1) = 'E')::int,
      (octet_length(translate(steps, '0123456789', '')) + 1) / 2]
    || ('{' || steps || '}')::bigint[];
END $$;

-- What may stand before or behind the fields: a zone, weeks of the year, a modifier. They stand in this order wherever they are counted.

-- Which of them a word is: 1, 2, 3, or NULL for none. Behind the fields a zone needs no prefix when it has a slash with a letter behind it.
-- PostgreSQL puts the expression in place of the call.
CREATE OR REPLACE FUNCTION cron_extension_kind(word text, behind boolean) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
  WHEN word < 'A' THEN NULL                              -- letters come behind everything that a number or * begins with
  WHEN word ^@ 'TZ:' OR word ^@ 'TZ=' OR word ^@ 'CRON_TZ=' OR behind AND strpos(word, '/') > 0 AND word ~ '^[A-Za-z][A-Za-z0-9_+-]*/[A-Za-z]' THEN 1
  WHEN word ^@ 'WOY:' THEN 2
  WHEN word ~ '^[ES](OD:|[0-9])' THEN 3 END;

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
DECLARE
  list text := substr(words[w], 5);
BEGIN
  RETURN coalesce(cron_simple(list, 8), cron_list(list, 8, p, n, w, 4));
END $$;

-- {1 if to the end, how many steps, unit, count, unit, count, ...}; units count from S up to Y. M behind H or T is m. A count that leads past the year
-- 9999 from anywhere is as good as any higher one.
CREATE OR REPLACE FUNCTION cron_parse_modifier(p text, n int, words text[], w int) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  units constant text := 'SmHDWMQY';
  word text := words[w];
  colon int := strpos(word, ':');
  steps text;
  time int;                                              -- where the times begin
  counts text[];
  letter text;
  i int := 1;
  unit int;
  most bigint;
  count bigint;
  size int := 2;
  found bigint[];
BEGIN
  IF word ~ '^[ES][0-9]{1,4}[YQMWDHmS]$' THEN            -- as most are
    RETURN ARRAY[(word ^@ 'E')::int, 1, strpos(units, right(word, 1)), substr(word, 2, length(word) - 2)::int];
  ELSIF word !~ '^([ES]OD:)?[ES][0-9]+[YQMWDHmS](T?[0-9]+[YQMWDHmS])*$' THEN
    PERFORM cron_refuse(p, cron_position(p, n, w), length(word), 'modifier',
      cron_shown(word) || ' is no modifier: E or S, then numbers with a unit of Y Q M W D H m S, as in E1M2D');
  END IF;
  found := ARRAY[(substr(word, colon + 1, 1) = 'E')::int, 0];
  steps := substr(word, colon + 2);
  time := strpos(translate(steps, 'T', 'H'), 'H');
  IF time > 0 THEN steps := left(steps, time) || translate(substr(steps, time + 1), 'M', 'm'); END IF;
  counts := string_to_array(translate(steps, 'YQMWDHmST', ',,,,,,,,'), ',');
  FOREACH letter IN ARRAY string_to_array(translate(steps, '0123456789T', ''), NULL) LOOP
    unit := strpos(units, letter);
    most := ('{720000000000,12000000000,200000000,8000000,1100000,240000,80000,20000}'::bigint[])[unit];
    count := least(most, CASE WHEN length(counts[i]) < 16 THEN counts[i] ELSE '0' || left(ltrim(counts[i], '0'), 16) END::bigint);
    i := i + 1;
    IF size > 2 AND found[size - 1] = unit THEN          -- the same unit again: so many periods further
      found[size] := least(found[size] + count, most);
    ELSE
      found[size + 1] := unit;
      found[size + 2] := count;
      size := size + 2;
    END IF;
  END LOOP;
  found[2] := size / 2 - 1;
  RETURN found;
END $$;

-- What may stand before or behind the fields: a zone, weeks of the year, a modifier. They stand in this order wherever they are counted.

-- Which of them a word is: 1, 2, 3, or NULL for none. Behind the fields a zone needs no prefix when it has a slash with a letter behind it.
-- PostgreSQL puts the expression in place of the call.
CREATE OR REPLACE FUNCTION cron_extension_kind(word text, behind boolean) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
  WHEN word < 'A' THEN NULL                              -- letters come behind everything that a number or * begins with
  WHEN word ^@ 'TZ:' OR word ^@ 'TZ=' OR word ^@ 'CRON_TZ=' OR behind AND strpos(word, '/') > 0 AND word ~ '^[A-Za-z][A-Za-z0-9_+-]*/[A-Za-z]' THEN 1
  WHEN word ^@ 'WOY:' THEN 2
  WHEN word ~ '^[ES](OD:|[0-9])' THEN 3 END;

-- The name of a zone, without the prefix.
CREATE OR REPLACE FUNCTION cron_zone_name(word text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN word ^@ 'TZ:' OR word ^@ 'TZ=' THEN substr(word, 4) WHEN word ^@ 'CRON_TZ=' THEN substr(word, 9) ELSE word END;

CREATE OR REPLACE FUNCTION cron_parse_weeks(p text, n int, words text[], w int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  list text := substr(words[w], 5);
BEGIN
  RETURN coalesce(cron_meaning(list, 8), cron_list(list, 8, p, n, w, 4));
END $$;

-- A modifier of one step, as most are; NULL for any other. PostgreSQL puts the expression in place of the call.
CREATE OR REPLACE FUNCTION cron_simple_modifier(word text) RETURNS bigint[] LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN word ~ '^[ES][0-9]{1,4}[YQMWDHmS]$' THEN ARRAY[(word ^@ 'E')::int, 1, substr(word, 2, length(word) - 2)::int, strpos('SmHDWMQY', right(word, 1))] END;

-- {1 if to the end, how many steps, count, unit, count, unit, ...}; units count from S up to Y. M behind H or T is m. A count that leads past the year
-- 9999 from anywhere is as good as any higher one.
CREATE OR REPLACE FUNCTION cron_parse_modifier(p text, n int, words text[], w int) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  word text := words[w];
  colon int := strpos(word, ':');
  steps text := substr(word, colon + 2);
  time int;                                              -- where the times begin
  most constant bigint[] := '{720000000000,12000000000,200000000,8000000,1100000,240000,80000,20000}';
  found text[];
BEGIN
  IF word !~ '^([ES]OD:)?[ES][0-9]+[YQMWDHmS](T?[0-9]+[YQMWDHmS])*$' THEN
    PERFORM cron_refuse(p, cron_position(p, n, w), length(word), 'modifier',
      cron_shown(word) || ' is no modifier: E or S, then numbers with a unit of Y Q M W D H m S, as in E1M2D');
  END IF;
  IF steps ~ '[HT].*M' THEN
    time := strpos(translate(steps, 'T', 'H'), 'H');
    steps := left(steps, time) || translate(substr(steps, time + 1), 'M', 'm');
  END IF;
  -- As an array is written: from one end to the other, as a loop over hundreds of steps would take long.
  steps := replace(replace(replace(replace(replace(steps, 'S', ',1,'), 'm', ',2,'), 'H', ',3,'), 'D', ',4,'), 'W', ',5,');
  steps := rtrim(replace(replace(replace(replace(steps, 'M', ',6,'), 'Q', ',7,'), 'Y', ',8,'), 'T', ''), ',');
  IF steps ~ '[0-9]{10}' THEN                            -- what is shorter is not too much to count with
    found := string_to_array(steps, ',');
    FOR i IN 1 .. cardinality(found) BY 2 LOOP
      found[i] := least(most[found[i + 1]::int], ('0' || left(ltrim(found[i], '0'), 16))::bigint);
    END LOOP;
    steps := array_to_string(found, ',');
  END IF;
  RETURN ARRAY[(substr(word, colon + 1, 1) = 'E')::int, (octet_length(translate(steps, '0123456789', '')) + 1) / 2] || ('{' || steps || '}')::bigint[];
END $$;

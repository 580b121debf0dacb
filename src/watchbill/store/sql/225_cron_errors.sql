-- What is wrong with a pattern: SQLSTATE WB010, with the field, the reason, the text with carets below it, and what was perhaps meant. Only called by
-- functions that have set the search path. They never return, but say that they would, so that they can stand in an expression: a statement takes longer.

CREATE OR REPLACE FUNCTION cron_refuse(p text, at int, length int, field text, reason text, suggestion text DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  start int := greatest(0, at - 36);
  line text := regexp_replace(substr(p, start + 1, 72), '[^ -~]', '?', 'g');
  message text := format(E'%s: %s\n  %s\n  %s%s', field, reason, line, repeat(' ', at - start), repeat('^', least(greatest(length, 1), 72 - (at - start))));
BEGIN
  IF suggestion IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'WB010', MESSAGE = message;
  END IF;
  RAISE EXCEPTION USING ERRCODE = 'WB010', MESSAGE = message, HINT = format('Did you mean %s?', suggestion);
END $$;

-- Where word w of part n begins, or the part itself (w = 0); from 0 on.
CREATE OR REPLACE FUNCTION cron_position(p text, n int, w int) RETURNS int LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  parts text[] := string_to_array(p, '|');
BEGIN
  RETURN length(array_to_string(parts[:n - 1], '|')) + CASE n WHEN 1 THEN 0 ELSE 1 END + CASE w WHEN 0 THEN 0 ELSE regexp_instr(parts[n], E'[^ \t]+', 1, w) - 1 END;
END $$;

-- A piece of a pattern inside a message: bounded, and as Python shows it.
CREATE OR REPLACE FUNCTION cron_shown(piece text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  shown text := CASE WHEN length(piece) > 40 THEN left(piece, 40) || '...' ELSE piece END;
  mark text := '''';
BEGIN
  IF shown ~ '^[ !#-&(-Z^-~]*$' THEN RETURN quote_literal(shown); END IF;                  -- as most are: nothing to escape
  IF shown ~ '''' AND shown !~ '"' THEN mark := '"'; END IF;
  shown := replace(replace(replace(replace(shown, E'\\', E'\\\\'), E'\t', E'\\t'), E'\n', E'\\n'), E'\r', E'\\r');
  IF shown ~ E'[\x01-\x1f\x7f]' THEN
    shown := (SELECT string_agg(CASE WHEN x ~ E'[\x01-\x1f\x7f]' THEN E'\\x' || lpad(to_hex(ascii(x)), 2, '0') ELSE x END, '' ORDER BY i)
      FROM regexp_split_to_table(shown, '') WITH ORDINALITY e(x, i));
  END IF;
  RETURN mark || CASE mark WHEN '''' THEN replace(shown, '''', E'\\''') ELSE shown END || mark;
END $$;

CREATE OR REPLACE FUNCTION cron_refuse_zone(p text, at int, name text) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
  RETURN cron_refuse(p, at, length(name), 'zone', cron_shown(name) || ' is neither an IANA zone like Europe/Paris nor an offset like +05:30', zone_like(name));
END $$;

CREATE OR REPLACE FUNCTION cron_refuse_second(p text, n int, words text[], w int, kind int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  field text := ('{zone,week of year,modifier}'::text[])[kind];
BEGIN
  RETURN cron_refuse(p, cron_position(p, n, w), length(words[w]), field, format('%s is the second one; a part has at most one %s', cron_shown(words[w]), field));
END $$;

CREATE OR REPLACE FUNCTION cron_refuse_macro(p text, at int, name text) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  macros text[] := '{@yearly,@annually,@monthly,@weekly,@daily,@midnight,@hourly,@reboot,@every}';
BEGIN
  RETURN cron_refuse(p, at, length(name), 'pattern', format('%s is not one of %s', cron_shown(name), array_to_string(macros, ', ')),
    (SELECT m FROM unnest(macros) m WHERE left(m, 3) = lower(left(name, 3)) LIMIT 1));
END $$;

CREATE OR REPLACE FUNCTION cron_refuse_count(p text, n int, words text[], lo int, hi int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  start int := cron_position(p, n, lo);
  count text := CASE hi - lo WHEN 0 THEN '1 field' ELSE format('%s fields', hi - lo + 1) END;
BEGIN
  RETURN cron_refuse(p, start, cron_position(p, n, hi) + length(words[hi]) - start, 'pattern',
    format('%s; a schedule has 5 (minute hour day month weekday), 6 (second first) or 7 (year last)', count));
END $$;

-- Where the first of such items of a list begins, from 0 on. PostgreSQL puts the expression in place of the call.
CREATE OR REPLACE FUNCTION cron_item_place(word text, item text) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN strpos(',' || word || ',', ',' || item || ',') - 1;

-- An item that cron_item does not understand.
CREATE OR REPLACE FUNCTION cron_refuse_item(item text, word text, field int, p text, n int, w int, skip int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  at int := cron_position(p, n, w) + skip + cron_item_place(word, item);
  names text[];
  range text := split_part(item, '/', 1);
  low text := split_part(range, '-', 1);
  high text;
  first int := cron_number(low, field);
  last int;
BEGIN
  IF item !~ '^([*]|[0-9A-Za-z]+(-[0-9A-Za-z]+)?)(/[0-9]+)?$' THEN
    names := cron_names(field);
    RETURN cron_refuse(p, at, length(item), cron_field_name(field), CASE item WHEN '' THEN 'an item of the list is empty'
      ELSE format('%s is no value, range or step of %s to %s', cron_shown(item), cron_low(field), cron_high(field))
        || CASE WHEN names = '{}' THEN '' ELSE format(' or %s to %s', names[1], names[cardinality(names)]) END END);
  ELSIF item ~ '/0+$' THEN
    RETURN cron_refuse(p, at, length(item), cron_field_name(field), 'a step is at least 1', range || '/1');
  ELSIF first IS NULL OR first NOT BETWEEN cron_low(field) AND cron_high(field) THEN
    RETURN cron_refuse_value(low, first, field, p, at);
  END IF;
  high := substr(range, length(low) + 2);
  last := cron_number(high, field);
  IF last IS NULL OR last NOT BETWEEN cron_low(field) AND cron_high(field) THEN
    RETURN cron_refuse_value(high, last, field, p, at + length(low) + 1);
  END IF;
  RETURN cron_refuse(p, at, length(item), cron_field_name(field), format('the range %s runs backwards', cron_shown(item)),
    CASE WHEN range = item THEN format('%s-%s,%s-%s', cron_low(field), last, first, cron_high(field)) END);
END $$;

CREATE OR REPLACE FUNCTION cron_refuse_month_item(item text, word text, p text, n int, w int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  at int := cron_position(p, n, w) + cron_item_place(word, item);
  value text := translate(item, 'L-W', '');
BEGIN
  IF item ~ '^L-[0-9]+W?$' THEN
    RETURN cron_refuse_value(value, cron_number(value, 9), 9, p, at + 2);
  ELSIF item ~ '^[0-9]+W$' THEN
    RETURN cron_refuse_value(value, cron_number(value, 4), 4, p, at);
  ELSIF upper(item) ~ '^(L(-[0-9]+)?W?|[0-9]+W)$' THEN
    RETURN cron_refuse_small(item, 4, p, at);
  END IF;
  RETURN cron_refuse_item(item, word, 4, p, n, w, 0);
END $$;

CREATE OR REPLACE FUNCTION cron_refuse_week_item(item text, word text, p text, n int, w int, skip int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  at int := cron_position(p, n, w) + skip + cron_item_place(word, item);
  behind text := CASE WHEN item >= 'A' THEN substr(item, 4) ELSE ltrim(item, '0123456789') END;
  value text := left(item, -length(behind));
  day int := cron_number(value, 6);
  number text := ltrim(behind, 'W#-');
BEGIN
  IF item ~ '^([0-9]+|[A-Za-z]{3})(#?L|#-?[0-9]+|W[0-9]+)$' THEN
    IF day IS NULL OR day > 7 THEN
      RETURN cron_refuse_value(value, day, 6, p, at);
    ELSIF day = 7 AND behind ^@ 'W' THEN
      RETURN cron_refuse(p, at, length(item), 'day of week', 'in a row of the month Sunday is 0, not 7', '0' || behind);
    END IF;
    RETURN cron_refuse_value(number, cron_number(number, 10), 10, p, at + length(item) - length(number));
  ELSIF upper(item) ~ '^([0-9]+|[A-Z]{3})(#?L|#-?[0-9]+|W[0-9]+)$' THEN
    RETURN cron_refuse_small(item, 6, p, at);
  END IF;
  RETURN cron_refuse_item(item, word, 6, p, n, w, skip);
END $$;

-- A number out of bounds, or, where that is NULL, an unknown name.
CREATE OR REPLACE FUNCTION cron_refuse_value(value text, number int, field int, p text, at int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
  names text[] := cron_names(field);
  bounds text := format('%s to %s', cron_low(field), cron_high(field));
  short text := upper(left(value, 3));
BEGIN
  IF number IS NOT NULL THEN
    RETURN cron_refuse(p, at, length(value), cron_field_name(field), format('%s is not in %s', cron_shown(value), bounds),
      CASE WHEN number = cron_high(field) + 1 AND number IN (24, 60) THEN '0' END);          -- 24:00, minute 60
  END IF;
  RETURN cron_refuse(p, at, length(value), cron_field_name(field),
    CASE WHEN names = '{}' THEN format('%s is not a number of %s', cron_shown(value), bounds)
      ELSE format('%s is not one of %s or %s', cron_shown(value), array_to_string(names, ', '), bounds) END,
    CASE WHEN short = ANY (names) THEN short END);
END $$;

CREATE OR REPLACE FUNCTION cron_refuse_small(item text, field int, p text, at int) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
BEGIN
  RETURN cron_refuse(p, at, length(item), cron_field_name(field), 'L and W are written in capitals', upper(item));
END $$;

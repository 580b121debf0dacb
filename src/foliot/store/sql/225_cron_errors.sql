-- What is wrong with a pattern: SQLSTATE FO010, with the field, the reason, the text with carets below it, and what was perhaps meant.

CREATE OR REPLACE FUNCTION cron_refuse(p text, at int, length int, field text, reason text, suggestion text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  start int := greatest(0, at - 36);
  line text := regexp_replace(substr(p, start + 1, 72), '[^ -~]', '?', 'g');
  message text := format(E'%s: %s\n  %s\n  %s%s', field, reason, line, repeat(' ', at - start), repeat('^', least(greatest(length, 1), 72 - (at - start))));
BEGIN
  IF suggestion IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'FO010', MESSAGE = message;
  END IF;
  RAISE EXCEPTION USING ERRCODE = 'FO010', MESSAGE = message, HINT = format('Did you mean %s?', suggestion);
END $$;

-- Where word w of part n begins, or the part itself (w = 0); from 0 on.
CREATE OR REPLACE FUNCTION cron_position(p text, n int, w int) RETURNS int LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  parts text[] := string_to_array(p, '|');
  at int := length(array_to_string(parts[:n - 1], '|')) + CASE WHEN n > 1 THEN 1 ELSE 0 END;
BEGIN
  IF w = 0 THEN RETURN at; END IF;
  RETURN at + regexp_instr(parts[n], E'[^ \t]+', 1, w) - 1;
END $$;

-- A piece of a pattern inside a message: bounded, and as Python shows it.
CREATE OR REPLACE FUNCTION cron_shown(piece text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  shown text := CASE WHEN length(piece) > 40 THEN left(piece, 40) || '...' ELSE piece END;
  mark text := CASE WHEN shown ~ '''' AND shown !~ '"' THEN '"' ELSE '''' END;
BEGIN
  shown := replace(replace(replace(replace(shown, E'\\', E'\\\\'), E'\t', E'\\t'), E'\n', E'\\n'), E'\r', E'\\r');
  IF shown ~ E'[\x01-\x1f\x7f]' THEN
    shown := (SELECT string_agg(CASE WHEN x ~ E'[\x01-\x1f\x7f]' THEN E'\\x' || lpad(to_hex(ascii(x)), 2, '0') ELSE x END, '' ORDER BY i)
      FROM regexp_split_to_table(shown, '') WITH ORDINALITY e(x, i));
  END IF;
  RETURN mark || CASE mark WHEN '''' THEN replace(shown, '''', E'\\''') ELSE shown END || mark;
END $$;

CREATE OR REPLACE FUNCTION cron_refuse_zone(p text, at int, name text) RETURNS void LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM cron_refuse(p, at, length(name), 'zone', cron_shown(name) || ' is neither an IANA zone like Europe/Paris nor an offset like +05:30', zone_like(name));
END $$;

CREATE OR REPLACE FUNCTION cron_refuse_second(p text, n int, words text[], w int, kind int) RETURNS void LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  field text := ('{zone,week of year,modifier}'::text[])[kind];
BEGIN
  PERFORM cron_refuse(p, cron_position(p, n, w), length(words[w]), field, format('%s is the second one; a part has at most one %s', cron_shown(words[w]), field));
END $$;

CREATE OR REPLACE FUNCTION cron_refuse_macro(p text, at int, name text) RETURNS void LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  macros text[] := '{@yearly,@annually,@monthly,@weekly,@daily,@midnight,@hourly,@reboot,@every}';
BEGIN
  PERFORM cron_refuse(p, at, length(name), 'pattern', format('%s is not one of %s', cron_shown(name), array_to_string(macros, ', ')),
    (SELECT m FROM unnest(macros) m WHERE left(m, 3) = lower(left(name, 3)) LIMIT 1));
END $$;

CREATE OR REPLACE FUNCTION cron_refuse_count(p text, n int, fields text, lo int, size int) RETURNS void LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  start int := cron_position(p, n, lo);
BEGIN
  PERFORM cron_refuse(p, start, cron_position(p, n, lo + size - 1) + length(split_part(fields, ' ', -1)) - start, 'pattern',
    format('%s; a schedule has 5 (minute hour day month weekday), 6 (second first) or 7 (year last)', CASE size WHEN 1 THEN '1 field' ELSE size || ' fields' END));
END $$;

CREATE OR REPLACE FUNCTION cron_refuse_item(item text, field text, low int, high int, names text[], p text, at int) RETURNS void
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM cron_refuse(p, at, length(item), field, CASE item WHEN '' THEN 'an item of the list is empty'
    ELSE format('%s is no value, range or step of %s to %s', cron_shown(item), low, high)
      || CASE WHEN names = '{}' THEN '' ELSE format(' or %s to %s', names[1], names[cardinality(names)]) END END);
END $$;

CREATE OR REPLACE FUNCTION cron_refuse_name(name text, field text, low int, high int, names text[], p text, at int) RETURNS void
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM cron_refuse(p, at, length(name), field,
    CASE WHEN names = '{}' THEN format('%s is not a number of %s to %s', cron_shown(name), low, high)
      ELSE format('%s is not one of %s or %s to %s', cron_shown(name), array_to_string(names, ', '), low, high) END,
    CASE WHEN upper(left(name, 3)) = ANY (names) THEN upper(left(name, 3)) END);
END $$;

CREATE OR REPLACE FUNCTION cron_refuse_small(item text, field text, p text, at int) RETURNS void LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM cron_refuse(p, at, length(item), field, 'L and W are written in capitals', upper(item));
END $$;

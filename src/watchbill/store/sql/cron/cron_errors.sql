-- Raises the errors of parse_cron(): SQLSTATE WB010 with the field, the reason, the position and
-- perhaps a hint. src/watchbill/cron raises the same errors with a similar text.
--
-- The functions whose names contain `refuse` never return. They have a result type so that
-- expressions can call them.

-- Raises an error about a pattern. `at` is a position that counts from 0; the message counts from
-- 1.
CREATE OR REPLACE FUNCTION _cron_refuse_pattern(
  p text, at int, field text, reason text, suggestion text DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  invalid text := CASE field
    WHEN 'zone' THEN 'time zone'
    WHEN 'pattern' THEN 'cron pattern'
    ELSE 'cron pattern: ' || field
  END;
  message text := format('Invalid %s: %s, at position %s', invalid, reason, at + 1);
BEGIN
  IF suggestion IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'WB010', MESSAGE = message, DETAIL = _quote_excerpt(p);
  END IF;
  RAISE EXCEPTION USING
    ERRCODE = 'WB010',
    MESSAGE = message,
    DETAIL = _quote_excerpt(p),
    HINT = format('Did you mean %s?', suggestion);
END $$;

-- Returns the position in the pattern, counted from 0, at which word w of part n begins; w = 0
-- means the part itself.
CREATE OR REPLACE FUNCTION _cron_find_word_position(p text, n int, w int)
RETURNS int
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  parts text[] := string_to_array(p, '|');
  part_at int := length(array_to_string(parts[:n - 1] || ''::text, '|'));
BEGIN
  RETURN part_at + CASE w WHEN 0 THEN 0 ELSE regexp_instr(parts[n], E'[^ \t]+', 1, w) - 1 END;
END $$;

-- Quotes a piece of a pattern for a message: at most 40 characters, all printable.
CREATE OR REPLACE FUNCTION _quote_excerpt(piece text)
RETURNS text
LANGUAGE sql IMMUTABLE
RETURN format(
  CASE WHEN length(piece) > 40 THEN '''%s...''' ELSE '''%s''' END,
  regexp_replace(left(piece, 40), '[^ -~]', '?', 'g'));

CREATE OR REPLACE FUNCTION _cron_refuse_zone(p text, at int, name text)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
  RETURN _cron_refuse_pattern(
    p,
    at,
    'zone',
    _quote_excerpt(name) || ' is neither an IANA zone like Europe/Paris nor an offset like +05:30',
    _suggest_zone(name));
END $$;

CREATE OR REPLACE FUNCTION _cron_refuse_second_extension(
  p text, n int, words text[], w int, kind int
)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  field text := ('{zone,week of year,modifier}'::text[])[kind];
BEGIN
  RETURN _cron_refuse_pattern(
    p,
    _cron_find_word_position(p, n, w),
    field,
    format('%s is the second one; a part has at most one %s', _quote_excerpt(words[w]), field));
END $$;

CREATE OR REPLACE FUNCTION _find_item_position(word text, item text)
RETURNS int
LANGUAGE sql IMMUTABLE
RETURN strpos(',' || word || ',', ',' || item || ',') - 1;

-- Raises the error for an item that _cron_parse_field_item() does not accept. The list of the item
-- begins `skip` characters after the start of word w.
CREATE OR REPLACE FUNCTION _cron_refuse_item(
  item text, word text, field int, p text, n int, w int, skip int
)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  at int := _cron_find_word_position(p, n, w) + skip + _find_item_position(word, item);
  name text := _cron_field_name(field);
  lowest int := _cron_field_min(field);
  highest int := _cron_field_max(field);
  range text := split_part(item, '/', 1);
  low text := split_part(range, '-', 1);
  high text := substr(range, length(low) + 2);
  first int := _parse_field_value(low, field);
  last int := _parse_field_value(high, field);
BEGIN
  IF item = '' THEN
    RETURN _cron_refuse_pattern(p, at, name, 'an item of the list is empty');
  ELSIF item !~ '^([*]|[0-9A-Za-z]+(-[0-9A-Za-z]+)?)(/[0-9]+)?$' THEN
    RETURN _cron_refuse_pattern(p, at, name, format(
      '%s is not a value, range or step of %s to %s', _quote_excerpt(item), lowest, highest));
  ELSIF item ~ '/0+$' THEN
    RETURN _cron_refuse_pattern(p, at, name, 'a step is at least 1', range || '/1');
  ELSIF (first BETWEEN lowest AND highest) IS NOT TRUE THEN
    RETURN _cron_refuse_value(low, field, p, at);
  ELSIF (last BETWEEN lowest AND highest) IS NOT TRUE THEN
    RETURN _cron_refuse_value(high, field, p, at + length(low) + 1);
  END IF;
  RETURN _cron_refuse_pattern(
    p,
    at,
    name,
    format('the range %s runs backwards', _quote_excerpt(item)),
    CASE WHEN range = item THEN format('%s-%s,%s-%s', lowest, last, first, highest) END);
END $$;

CREATE OR REPLACE FUNCTION _cron_refuse_month_day_item(item text, word text, p text, n int, w int)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  at int := _cron_find_word_position(p, n, w) + _find_item_position(word, item);
  value text := translate(item, 'L-W', '');
BEGIN
  IF item ~ '^L-[0-9]+W?$' THEN
    RETURN _cron_refuse_value(value, 9, p, at + 2);
  ELSIF item ~ '^[0-9]+W$' THEN
    RETURN _cron_refuse_value(value, 4, p, at);
  ELSIF upper(item) ~ '^(L(-[0-9]+)?W?|[0-9]+W)$' THEN
    RETURN _cron_refuse_pattern(
      p, at, 'day of month', 'L and W are written in capitals', upper(item));
  END IF;
  RETURN _cron_refuse_item(item, word, 4, p, n, w, 0);
END $$;

CREATE OR REPLACE FUNCTION _cron_refuse_weekday_item(
  item text, word text, p text, n int, w int, skip int
)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  at int := _cron_find_word_position(p, n, w) + skip + _find_item_position(word, item);
  tail text := CASE WHEN item >= 'A' THEN substr(item, 4) ELSE ltrim(item, '0123456789') END;
  value text := left(item, -length(tail));
  day int := _parse_field_value(value, 6);
  number text := ltrim(tail, 'W#-');
BEGIN
  IF item ~ '^([0-9]+|[A-Za-z]{3})(#?L|#-?[0-9]+|W[0-9]+)$' THEN
    IF day IS NULL OR day > 7 THEN
      RETURN _cron_refuse_value(value, 6, p, at);
    ELSIF day = 7 AND tail ^@ 'W' THEN
      RETURN _cron_refuse_pattern(
        p, at, 'day of week', 'in a row of the month Sunday is 0, not 7', '0' || tail);
    END IF;
    RETURN _cron_refuse_value(number, 10, p, at + length(item) - length(number));
  ELSIF upper(item) ~ '^([0-9]+|[A-Z]{3})(#?L|#-?[0-9]+|W[0-9]+)$' THEN
    RETURN _cron_refuse_pattern(
      p, at, 'day of week', 'L and W are written in capitals', upper(item));
  END IF;
  RETURN _cron_refuse_item(item, word, 6, p, n, w, skip);
END $$;

-- Raises the error for a number out of bounds or an unknown name. Suggests 0 instead of 24 or 60.
CREATE OR REPLACE FUNCTION _cron_refuse_value(value text, field int, p text, at int)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  names text[] := _cron_field_value_names(field);
  number int := _parse_field_value(value, field);
  short text := upper(left(value, 3));
BEGIN
  RETURN _cron_refuse_pattern(
    p,
    at,
    _cron_field_name(field),
    format(
      '%s is not in %s to %s%s',
      _quote_excerpt(value),
      _cron_field_min(field),
      _cron_field_max(field),
      CASE WHEN names <> '{}' THEN ' or ' || array_to_string(names, ', ') END),
    CASE
      WHEN number = _cron_field_max(field) + 1 AND number IN (24, 60) THEN '0'
      WHEN short = ANY (names) THEN short
    END);
END $$;

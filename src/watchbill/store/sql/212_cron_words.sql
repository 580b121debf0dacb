-- The masks of short words of the fields, as constants of generated functions: a look-up is four
-- times faster than parsing a word.

-- _word_masks(field): the masks of words, as texts, which jsonb returns faster than numbers. The
-- words are *, values, steps of * and of single digits, ranges, and pairs of single digits. Fields
-- with more than 31 values have thousands of ranges: only those of single digits are here.
DO $$
DECLARE
  cases text := '';
  low int;
  high int;
  most int;
BEGIN
  FOR field IN 1 .. 8 LOOP
    low := _field_min(field);
    high := _field_max(field);
    most := CASE WHEN high <= 31 THEN high ELSE 9 END;
    -- Years do not fit into one mask.
    CONTINUE WHEN field = 7;
    cases := cases || format(' WHEN %s THEN %L', field, (
      WITH known AS (
        SELECT v AS value, v::text AS word FROM generate_series(low, high) v
        UNION ALL
        SELECT low + i::int - 1, name
        FROM unnest(_value_names(field)) WITH ORDINALITY u(name, i))
      SELECT jsonb_object_agg(w.word, w.mask::text)
      FROM (
        SELECT '*' AS word, _range_mask(low, high, field) AS mask
        UNION ALL
        SELECT '*/' || s, (_step_mask(s) << low) & ((2::bigint << high) - 1)
        FROM generate_series(1, 99) s
        UNION ALL
        SELECT word, 1::bigint << value FROM known
        UNION ALL
        SELECT lpad(v::text, 2, '0'), 1::bigint << v
        FROM generate_series(low, least(high, 9)) v
        UNION ALL
        SELECT lpad(v::text, 3, '0'), 1::bigint << v
        FROM generate_series(low, high) v
        UNION ALL
        SELECT word || '/' || s, (_step_mask(s) << value) & ((2::bigint << high) - 1)
        FROM known, generate_series(1, high) s
        WHERE value < 10
        UNION ALL
        SELECT a.word || '-' || b.word, _range_mask(a.value, b.value, field)
        FROM known a, known b
        WHERE a.value <= most AND b.value <= most
        UNION ALL
        SELECT a || ',' || b, (1::bigint << a) | (1::bigint << b)
        FROM generate_series(low, least(high, 9)) a, generate_series(low, least(high, 9)) b) w
      WHERE w.mask IS NOT NULL));
  END LOOP;
  EXECUTE format(
    'CREATE OR REPLACE FUNCTION _word_masks(field int) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE STRICT SET search_path FROM CURRENT AS %L',
    format('BEGIN RETURN CASE field%s END::jsonb; END', cases));
END $$;

-- _cron_year_masks(): every step-th year from 1970 on, as a string of 1054 bits, for steps below
-- 100.
DO $$
BEGIN
  EXECUTE format(
    'CREATE OR REPLACE FUNCTION _cron_year_masks() RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE AS %L',
    format('BEGIN RETURN %L::jsonb; END', (
      SELECT jsonb_object_agg(step, hex)
      FROM (
        SELECT
          step,
          'x' || string_agg(
            lpad(to_hex(substring(every FROM i FOR 16)::bit(16)::int), 4, '0'),
            '' ORDER BY i) AS hex
        FROM
          generate_series(1, 99) step,
          LATERAL (
            SELECT repeat('1' || repeat('0', step - 1), 1056 / step + 1)::bit(1056) AS every) e,
          generate_series(1, 1056, 16) i
        GROUP BY step) s)));
END $$;

-- The mask of a short word; NULL for a word that must be parsed.
CREATE OR REPLACE FUNCTION _look_up_word(word text, field int)
RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN (
  CASE field
    WHEN 1 THEN _word_masks(1)
    WHEN 2 THEN _word_masks(2)
    WHEN 3 THEN _word_masks(3)
    WHEN 4 THEN _word_masks(4)
    WHEN 5 THEN _word_masks(5)
    WHEN 6 THEN _word_masks(6)
    WHEN 8 THEN _word_masks(8)
  END ->> word)::bigint;

-- _cron_month_marks() and _cron_week_marks(): which bit a special of a day field sets, + 64 for
-- L-nW and d#-n, + 128 for nW and dWk.
DO $$
BEGIN
  EXECUTE format(
    'CREATE OR REPLACE FUNCTION _cron_month_marks() RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE AS %L',
    format('BEGIN RETURN %L::jsonb; END', (
      SELECT jsonb_object_agg(word, bit::text)
      FROM (
        SELECT 'L' AS word, 30 AS bit
        UNION ALL
        SELECT 'LW', 64 + 30
        UNION ALL
        SELECT 'L-' || v, 30 - v FROM generate_series(1, 30) v
        UNION ALL
        SELECT 'L-' || v || 'W', 64 + 30 - v FROM generate_series(1, 30) v
        UNION ALL
        SELECT v || 'W', 128 + v - 1 FROM generate_series(1, 31) v) w)));
  EXECUTE format(
    'CREATE OR REPLACE FUNCTION _cron_week_marks() RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE AS %L',
    format('BEGIN RETURN %L::jsonb; END', (
      SELECT jsonb_object_agg(word, bit::text)
      FROM (
        WITH days AS (
          SELECT d AS day, d::text AS name FROM generate_series(0, 7) d
          UNION ALL
          SELECT i::int - 1, name FROM unnest(_value_names(6)) WITH ORDINALITY u(name, i))
        SELECT name || mark AS word, 64 + 28 + day % 7 AS bit
        FROM days, unnest('{L,#L}'::text[]) mark
        UNION ALL
        SELECT name || '#' || v, 7 * (v - 1) + day % 7
        FROM days, generate_series(1, 5) v
        UNION ALL
        SELECT name || '#-' || v, 64 + 7 * (5 - v) + day % 7
        FROM days, generate_series(1, 5) v
        UNION ALL
        SELECT name || 'W' || v, 128 + 7 * (v - 1) + (day + 6) % 7
        FROM days, generate_series(1, 5) v
        WHERE day < 7) w)));
END $$;

-- Makes functions that return, as constants, the masks of the words that fields mostly consist of.
-- To look up a word is four times faster than to parse it.

-- Makes _list_word_masks(field), which returns the mask of each word. The masks are texts, because
-- jsonb returns a text faster than a number. The words are *, values, steps of * and of single
-- digits, ranges, and pairs of single digits. Fields with more than 31 values would have thousands
-- of ranges, so only their ranges of single digits are included.
DO $$
DECLARE
  cases text := '';
  low int;
  high int;
  most int;
BEGIN
  FOR field IN 1 .. 8 LOOP
    low := _cron_field_min(field);
    high := _cron_field_max(field);
    most := CASE WHEN high <= 31 THEN high ELSE 9 END;
    -- The year field has more values than a mask has bits.
    CONTINUE WHEN field = 7;
    cases := cases || format(' WHEN %s THEN %L', field, (
      WITH known AS (
        SELECT v AS value, v::text AS word FROM generate_series(low, high) v
        UNION ALL
        SELECT low + i::int - 1, name
        FROM unnest(_cron_field_value_names(field)) WITH ORDINALITY u(name, i))
      SELECT jsonb_object_agg(w.word, w.mask::text)
      FROM (
        SELECT '*' AS word, _make_range_mask(low, high, field) AS mask
        UNION ALL
        SELECT '*/' || s, (_make_step_mask(s) << low) & ((2::bigint << high) - 1)
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
        SELECT word || '/' || s, (_make_step_mask(s) << value) & ((2::bigint << high) - 1)
        FROM known, generate_series(1, high) s
        WHERE value < 10
        UNION ALL
        SELECT a.word || '-' || b.word, _make_range_mask(a.value, b.value, field)
        FROM known a, known b
        WHERE a.value <= most AND b.value <= most
        UNION ALL
        SELECT a || ',' || b, (1::bigint << a) | (1::bigint << b)
        FROM generate_series(low, least(high, 9)) a, generate_series(low, least(high, 9)) b) w
      WHERE w.mask IS NOT NULL));
  END LOOP;
  EXECUTE format(
    'CREATE OR REPLACE FUNCTION _list_word_masks(field int) RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE STRICT SET search_path FROM CURRENT AS %L',
    format('BEGIN RETURN CASE field%s END::jsonb; END', cases));
END $$;

-- Makes _cron_list_year_masks(), which returns for each step below 100 the mask of every step-th
-- year from 1970 on, as a string of 1054 bits.
DO $$
BEGIN
  EXECUTE format(
    'CREATE OR REPLACE FUNCTION _cron_list_year_masks() RETURNS jsonb
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

-- Returns the mask of a word of this field; NULL for a word that is not in the constants and must
-- be parsed.
CREATE OR REPLACE FUNCTION _look_up_word_mask(word text, field int)
RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN (
  CASE field
    WHEN 1 THEN _list_word_masks(1)
    WHEN 2 THEN _list_word_masks(2)
    WHEN 3 THEN _list_word_masks(3)
    WHEN 4 THEN _list_word_masks(4)
    WHEN 5 THEN _list_word_masks(5)
    WHEN 6 THEN _list_word_masks(6)
    WHEN 8 THEN _list_word_masks(8)
  END ->> word)::bigint;

-- Makes _cron_list_month_special_bits() and _cron_list_week_special_bits(). They return the number
-- of the bit that a special item of a day field sets, such as L-3 or FRI#2. L-nW and d#-n set bits
-- of a second mask, so 64 is added to their numbers; nW and dWk set bits of a third, so 128 is
-- added.
DO $$
BEGIN
  EXECUTE format(
    'CREATE OR REPLACE FUNCTION _cron_list_month_special_bits() RETURNS jsonb
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
    'CREATE OR REPLACE FUNCTION _cron_list_week_special_bits() RETURNS jsonb
    LANGUAGE plpgsql IMMUTABLE AS %L',
    format('BEGIN RETURN %L::jsonb; END', (
      SELECT jsonb_object_agg(word, bit::text)
      FROM (
        WITH days AS (
          SELECT d AS day, d::text AS name FROM generate_series(0, 7) d
          UNION ALL
          SELECT i::int - 1, name
          FROM unnest(_cron_field_value_names(6)) WITH ORDINALITY u(name, i))
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

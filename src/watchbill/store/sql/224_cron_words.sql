-- What short words mean, known by heart: looking one up takes a quarter of the time of reading it. PostgreSQL makes the words of a field a constant of each
-- expression that looks into them. As it does so once in a session, they are constants of functions, too: working them out would take ten times as long.

-- Masks of a field's words, as text, which is taken out faster than a number: *, values, steps of * and of single digits, ranges, pairs of single digits.
-- Of fields with more than 31 values only ranges of single digits, as there would be thousands.
DO $$
DECLARE
  cases text := '';
  low int;
  high int;
  most int;
BEGIN
  FOR field IN 1 .. 8 LOOP
    low := cron_low(field);
    high := cron_high(field);
    most := CASE WHEN high <= 31 THEN high ELSE 9 END;
    CONTINUE WHEN field = 7;                             -- years are more than a mask
    cases := cases || format(' WHEN %s THEN %L', field, (
      WITH known AS (
        SELECT v AS value, v::text AS word FROM generate_series(low, high) v
        UNION ALL SELECT low + i::int - 1, name FROM unnest(cron_names(field)) WITH ORDINALITY u(name, i))
      SELECT jsonb_object_agg(w.word, w.mask::text) FROM (
        SELECT '*' AS word, cron_from_to(low, high, field) AS mask
        UNION ALL SELECT '*/' || s, (cron_steps(s) << low) & ((2::bigint << high) - 1) FROM generate_series(1, 99) s
        UNION ALL SELECT word, 1::bigint << value FROM known
        UNION ALL SELECT lpad(v::text, 2, '0'), 1::bigint << v FROM generate_series(low, least(high, 9)) v
        UNION ALL SELECT lpad(v::text, 3, '0'), 1::bigint << v FROM generate_series(low, high) v
        UNION ALL SELECT word || '/' || s, (cron_steps(s) << value) & ((2::bigint << high) - 1) FROM known, generate_series(1, high) s WHERE value < 10
        UNION ALL SELECT a.word || '-' || b.word, cron_from_to(a.value, b.value, field) FROM known a, known b WHERE a.value <= most AND b.value <= most
        UNION ALL SELECT a || ',' || b, (1::bigint << a) | (1::bigint << b) FROM generate_series(low, least(high, 9)) a, generate_series(low, least(high, 9)) b) w
      WHERE w.mask IS NOT NULL));
  END LOOP;
  EXECUTE format('CREATE OR REPLACE FUNCTION cron_words(field int) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS %L',
    format('BEGIN RETURN CASE field%s END::jsonb; END', cases));
END $$;

-- Every so many years from 1970 on, as a string of 1054 bits: those of steps that need few characters.
DO $$
BEGIN
  EXECUTE format('CREATE OR REPLACE FUNCTION cron_year_steps() RETURNS jsonb LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT AS %L',
    format('BEGIN RETURN %L::jsonb; END', (
      SELECT jsonb_object_agg(step, hex) FROM (
        SELECT step, 'x' || string_agg(lpad(to_hex(substring(every FROM i FOR 16)::bit(16)::int), 4, '0'), '' ORDER BY i) AS hex
        FROM generate_series(1, 99) step, LATERAL (SELECT repeat('1' || repeat('0', step - 1), 1056 / step + 1)::bit(1056) AS every) e, generate_series(1, 1056, 16) i
        GROUP BY step) s)));
END $$;

-- The mask of a word of the field; NULL for one that must be read. PostgreSQL puts the expression in place of the call.
CREATE OR REPLACE FUNCTION cron_meaning(word text, field int) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (CASE field WHEN 1 THEN cron_words(1) WHEN 2 THEN cron_words(2) WHEN 3 THEN cron_words(3) WHEN 4 THEN cron_words(4) WHEN 5 THEN cron_words(5)
  WHEN 6 THEN cron_words(6) WHEN 8 THEN cron_words(8) END ->> word)::bigint;

-- Specials of the day fields: which bit they set, + 64 if it is one of L-nW or d#-n, + 128 if it is one of nW or dWk.
DO $$
BEGIN
  EXECUTE format('CREATE OR REPLACE FUNCTION cron_month_marks() RETURNS jsonb LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT AS %L',
    format('BEGIN RETURN %L::jsonb; END', (
      SELECT jsonb_object_agg(word, bit::text) FROM (
        SELECT 'L' AS word, 30 AS bit
        UNION ALL SELECT 'LW', 64 + 30
        UNION ALL SELECT 'L-' || v, 30 - v FROM generate_series(1, 30) v
        UNION ALL SELECT 'L-' || v || 'W', 64 + 30 - v FROM generate_series(1, 30) v
        UNION ALL SELECT v || 'W', 128 + v - 1 FROM generate_series(1, 31) v) w)));
  EXECUTE format('CREATE OR REPLACE FUNCTION cron_week_marks() RETURNS jsonb LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT AS %L',
    format('BEGIN RETURN %L::jsonb; END', (
      SELECT jsonb_object_agg(word, bit::text) FROM (
        WITH days AS (
          SELECT d AS day, d::text AS name FROM generate_series(0, 7) d
          UNION ALL SELECT i::int - 1, name FROM unnest(cron_names(6)) WITH ORDINALITY u(name, i))
        SELECT name || mark AS word, 64 + 28 + day % 7 AS bit FROM days, unnest('{L,#L}'::text[]) mark
        UNION ALL SELECT name || '#' || v, 7 * (v - 1) + day % 7 FROM days, generate_series(1, 5) v
        UNION ALL SELECT name || '#-' || v, 64 + 7 * (5 - v) + day % 7 FROM days, generate_series(1, 5) v
        UNION ALL SELECT name || 'W' || v, 128 + 7 * (v - 1) + (day + 6) % 7 FROM days, generate_series(1, 5) v WHERE day < 7) w)));
END $$;

-- Days, months, years and weeks in English. In c[b + 3], 2 says that the day of month is restricted, 4 that the day of week is.

-- With what leads up to it: ` on the 1st of every month`, `, Monday to Friday`. Every day may go without saying.
CREATE OR REPLACE FUNCTION explain_days(c bigint[], b int) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  by_month boolean := c[b + 3] & 2 > 0;
  by_week boolean := c[b + 3] & 4 > 0;
  told text;
BEGIN
  IF NOT by_month AND NOT by_week THEN
    RETURN CASE WHEN c[b + 3] & 1 = 1 THEN '' ELSE ' every day' END || explain_in_months(c[b + 8]);
  END IF;
  IF by_month AND by_week AND c[b + 11] = 0 THEN
    RETURN format(' %s %s %s', explain_month_days(c, b),
      CASE WHEN bit_count(c[b + 9]::bit(64)) + bit_count(c[b + 16]::bit(64)) + bit_count(c[b + 17]::bit(64)) + bit_count(c[b + 18]::bit(64)) > 1
        THEN 'when the day falls on' ELSE 'if it falls on' END, explain_condition(c, b));
  END IF;
  IF NOT by_month AND c[b + 19] = 0 AND c[b + 20] = 0 AND c[b + 21] = 0 THEN
    told := explain_weekdays(c[b + 10]);                 -- weekdays alone, where a run of them reads best after a comma
    IF told NOT LIKE 'from %' THEN RETURN format(' %s%s', told, explain_in_months(c[b + 8])); END IF;
    RETURN format(', %s%s%s', substr(told, 6), CASE c[b + 8] WHEN 4095 THEN '' ELSE ',' END, explain_in_months(c[b + 8]));
  END IF;
  RETURN ' ' || concat_ws(' and ', CASE WHEN by_month THEN explain_month_days(c, b) END, CASE WHEN by_week THEN explain_week_days(c, b) END);
END $$;

CREATE OR REPLACE FUNCTION explain_years(c bigint[], b int) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  at int := c[b + 22];
  years int[];
  step int := c[at + 2];
BEGIN
  IF at = 0 THEN RETURN NULL; END IF;
  IF step = 0 THEN                                       -- a list
    years := ARRAY(SELECT 1970 + 62 * k + bit FROM generate_series(0, (c[at + 1]::int - 1970) / 62) k, unnest(explain_bits(c[at + 3 + k])) bit ORDER BY k, bit);
    step := explain_step(years);
  ELSIF step = 1 AND c[at + 1] - c[at] > 1 THEN
    RETURN format('from %s to %s', c[at], c[at + 1]);
  ELSE
    years := ARRAY(SELECT generate_series(c[at], c[at + 1], step));
  END IF;
  IF step > 1 AND cardinality(years) > 4 THEN
    RETURN format('in every %s year from %s to %s', explain_ordinal(step), years[1], years[cardinality(years)]);
  END IF;
  RETURN explain_within(explain_spans(years, years::text[]));
END $$;

CREATE OR REPLACE FUNCTION explain_weeks(weeks bigint) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN CASE WHEN weeks <> 0 THEN 'in ISO ' || explain_listed(explain_bits(weeks), 'week') END;
END $$;

-- The names of months, from a mask that begins with March.
CREATE OR REPLACE FUNCTION explain_months(mask bigint) RETURNS text[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  names text[] := '{January,February,March,April,May,June,July,August,September,October,November,December}';
  months int[] := explain_bits(((mask << 2) | (mask >> 10)) & 4095);
BEGIN
  RETURN explain_spans(months, ARRAY(SELECT names[m + 1] FROM unnest(months) m ORDER BY m));
END $$;

CREATE OR REPLACE FUNCTION explain_in_months(mask bigint) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN CASE mask WHEN 4095 THEN '' ELSE ' ' || explain_within(explain_months(mask)) END;
END $$;

CREATE OR REPLACE FUNCTION explain_of_months(mask bigint) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  names text[] := explain_months(mask);
BEGIN
  IF mask = 4095 THEN RETURN 'of every month'; END IF;
  RETURN CASE WHEN cardinality(names) = 1 AND names[1] LIKE '% to %' THEN 'of every month from ' || names[1] ELSE 'of ' || explain_list(names) END;
END $$;

-- `on the 1st of every month`, `from the 1st to the 7th of March`.
CREATE OR REPLACE FUNCTION explain_month_days(c bigint[], b int) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  days int[] := explain_bits(c[b + 9]);
  step int := explain_step(days);
  items text[] := CASE WHEN step > 1 AND cardinality(days) > 4
    THEN ARRAY[format('every %s day from the %s to the %s', explain_ordinal(step), explain_ordinal(days[1] + 1), explain_ordinal(days[cardinality(days)] + 1))]
    ELSE explain_spans(days, ARRAY(SELECT 'the ' || explain_ordinal(d + 1) FROM unnest(days) d ORDER BY d)) END;
  specials text[];
  is_run boolean;
BEGIN
  specials := CASE WHEN (c[b + 16] | c[b + 17] | c[b + 18]) = 0 THEN '{}' ELSE ARRAY(SELECT 'the working day nearest to the ' || explain_ordinal(d + 1) FROM unnest(explain_bits(c[b + 18])) d ORDER BY d)
    || ARRAY(SELECT CASE WHEN before = 0 THEN CASE WHEN workday THEN 'the last working day' ELSE 'the last day' END
          ELSE format('%sthe %s to last day', CASE WHEN workday THEN 'the working day nearest to ' ELSE '' END, explain_ordinal(before + 1)) END
        FROM (SELECT 30 - d AS before, false AS workday FROM unnest(explain_bits(c[b + 16])) d UNION ALL SELECT 30 - d, true FROM unnest(explain_bits(c[b + 17])) d) l
        ORDER BY before, workday) END;
  is_run := cardinality(items) = 1 AND specials = '{}' AND items[1] LIKE '% to the %' AND items[1] NOT LIKE 'every%';
  RETURN format('%s %s %s', CASE WHEN is_run THEN 'from' ELSE 'on' END, explain_list(items || specials), explain_of_months(c[b + 8]));
END $$;

-- `on Mondays`, `from Monday to Friday`, `on the second Monday of March`.
CREATE OR REPLACE FUNCTION explain_week_days(c bigint[], b int) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  specials text[] := explain_week_specials(c, b);
BEGIN
  RETURN concat_ws(' and ', CASE WHEN c[b + 10] <> 0 THEN explain_weekdays(c[b + 10]) || explain_in_months(c[b + 8]) END,
    CASE WHEN specials <> '{}' THEN format('on %s %s', explain_list(specials), explain_of_months(c[b + 8])) END);
END $$;

CREATE OR REPLACE FUNCTION explain_weekdays(lanes bigint) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  run text := explain_weekday_run(lanes);
BEGIN
  RETURN coalesce('from ' || run, 'on ' || explain_list(ARRAY(SELECT name || 's' FROM unnest(explain_weekday_names(lanes)) WITH ORDINALITY u(name, i) ORDER BY i)));
END $$;

-- What a day of the month must be, too: `a Monday or a Friday`, `the last Friday of the month`.
CREATE OR REPLACE FUNCTION explain_condition(c bigint[], b int) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  run text := explain_weekday_run(c[b + 10]);
BEGIN
  RETURN explain_list(CASE WHEN run IS NOT NULL THEN ARRAY['a day from ' || run]
      ELSE ARRAY(SELECT 'a ' || name FROM unnest(explain_weekday_names(c[b + 10])) WITH ORDINALITY u(name, i) ORDER BY i) END
    || ARRAY(SELECT special || ' of the month' FROM unnest(explain_week_specials(c, b)) WITH ORDINALITY u(special, i) ORDER BY i), 'or');
END $$;

-- From Monday on.
CREATE OR REPLACE FUNCTION explain_weekday_names(lanes bigint) RETURNS text[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN ARRAY(SELECT name FROM unnest('{Monday,Tuesday,Wednesday,Thursday,Friday,Saturday,Sunday}'::text[]) WITH ORDINALITY u(name, i)
    WHERE (lanes >> (i % 7)::int) & 1 = 1 ORDER BY i);
END $$;

-- First and last of three or more weekdays in a row, over the weekend if need be. The lanes repeat every seven bits, so that a run is one of bits, too.
CREATE OR REPLACE FUNCTION explain_weekday_run(lanes bigint) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  names text[] := '{Sunday,Monday,Tuesday,Wednesday,Thursday,Friday,Saturday}';
  count int := bit_count((lanes & 127)::bit(64));
BEGIN
  IF count < 3 THEN RETURN NULL; END IF;
  FOR day IN 1 .. 7 LOOP
    IF (lanes >> day) & 127 = (1 << count) - 1 THEN RETURN format('%s to %s', names[day % 7 + 1], names[(day + count - 1) % 7 + 1]); END IF;
  END LOOP;
  RETURN NULL;
END $$;

-- `the second Monday`, `the last Friday`, `the Monday in the first calendar row`.
CREATE OR REPLACE FUNCTION explain_week_specials(c bigint[], b int) RETURNS text[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  names text[] := '{Sunday,Monday,Tuesday,Wednesday,Thursday,Friday,Saturday}';
  nth text[] := '{first,second,third,fourth,fifth}';
BEGIN
  RETURN ARRAY(SELECT CASE WHEN n > 0 THEN format('the %s %s', nth[n], names[d + 1]) WHEN n = -1 THEN 'the last ' || names[d + 1] ELSE format('the %s to last %s', nth[-n], names[d + 1]) END
      FROM (SELECT x % 7 AS d, x / 7 + 1 AS n FROM unnest(explain_bits(c[b + 19])) x UNION ALL SELECT x % 7, x / 7 - 5 FROM unnest(explain_bits(c[b + 20])) x) s ORDER BY d, n)
    || ARRAY(SELECT format('the %s in the %s calendar row', names[d + 1], nth[k])
      FROM (SELECT (x % 7 + 1) % 7 AS d, x / 7 + 1 AS k FROM unnest(explain_bits(c[b + 21])) x) r ORDER BY d, k);
END $$;

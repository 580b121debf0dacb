-- A schedule in English, in the words of src/watchbill/cron/explain; the tests compare them.

CREATE OR REPLACE FUNCTION explain_cron(pattern text, tz text DEFAULT 'UTC', dst text DEFAULT 'default', anchor timestamptz DEFAULT '1970-01-01 00:00:00+00')
RETURNS text LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  c bigint[] := parse_cron(pattern, tz, dst, anchor);
  parts text[] := string_to_array(pattern COLLATE "C", '|');
  told text[] := '{}';
  clocks_change boolean := false;
BEGIN
  FOR n IN 1 .. c[26]::int LOOP
    told := told || explain_part(c, 27 * (n - 1), parts[n], tz COLLATE "C", anchor);
    clocks_change := clocks_change OR c[27 * n - 26] = 0 AND c[27 * n - 25] > 0 AND NOT zone_is_fixed(c[27 * n - 25]::int);
  END LOOP;
  RETURN array_to_string(told, '; also ') || CASE WHEN clocks_change THEN CASE dst COLLATE "C"
    WHEN 'skip' THEN '; when clocks change, skipped times are left out and repeated ones run once'
    WHEN 'once' THEN '; when clocks change, skipped times run at the change and repeated ones run once'
    WHEN 'both' THEN '; when clocks change, skipped times run at the change and repeated ones run twice' ELSE '' END ELSE '' END;
END $$;

CREATE OR REPLACE FUNCTION zone_is_fixed(zone int) RETURNS boolean LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN (SELECT cardinality(z.offsets) = 1 FROM zones z WHERE z.number = zone);
END $$;

-- Counts and names of zones are taken from the text: parsed, the former are bounded and the latter are numbers.
CREATE OR REPLACE FUNCTION explain_part(c bigint[], b int, part text, own text, anchor timestamptz) RETURNS text
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  modifier text := substring(part FROM E'(?:^|[ \t])((?:[ES]OD:)?[ES][0-9][^ \t]*)');
  named text := coalesce(substring(part FROM E'(?:^|[ \t])(?:TZ[:=]|CRON_TZ=)([^ \t]+)'), substring(part FROM E'[ \t]([A-Za-z][A-Za-z0-9_+-]*/[A-Za-z][^ \t]*)'));
  zone text := explain_zone(coalesce(named, own), named IS NOT NULL);
  told text;
BEGIN
  IF c[b + 1] = 2 THEN RETURN 'once when the cluster starts'; END IF;
  IF c[b + 1] = 3 THEN RETURN explain_bare(modifier) || zone; END IF;
  IF c[b + 1] = 1 THEN
    told := format('%s, counted from %s UTC', explain_every(explain_period(part)), to_char(date_trunc('second', anchor AT TIME ZONE 'UTC'), 'YYYY-MM-DD HH24:MI:SS'));
    IF c[b + 14] = 0 AND modifier IS NULL THEN RETURN told; END IF;
  ELSE
    told := concat_ws(' ', explain_times(explain_bits(c[b + 7]), explain_bits(c[b + 6]), explain_bits(c[b + 5]), c[b + 3] & 1 = 1) || explain_days(c, b), explain_years(c, b));
  END IF;
  RETURN concat_ws(' ', told, explain_weeks(c[b + 14])) || CASE WHEN modifier IS NULL THEN '' ELSE ', moved ' || explain_moves(modifier) END || zone;
END $$;

-- Left out where nobody would expect another: UTC by default.
CREATE OR REPLACE FUNCTION explain_zone(name text, is_named boolean) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  places text[] := string_to_array(name, '/');
BEGIN
  IF name = 'UTC' THEN RETURN CASE WHEN is_named THEN ', UTC' ELSE '' END; END IF;
  IF name ~ '^[+-]' THEN RETURN ', at UTC' || name; END IF;
  IF cardinality(places) = 1 OR places[1] <> ALL ('{Africa,America,Antarctica,Arctic,Asia,Atlantic,Australia,Europe,Indian,Pacific}') THEN
    RETURN format(', %s time', name);
  END IF;
  RETURN format(', %s time', (SELECT string_agg(replace(place, '_', ' '), ', ' ORDER BY i DESC) FROM unnest(places[2:]) WITH ORDINALITY u(place, i)));
END $$;

CREATE OR REPLACE FUNCTION explain_bare(modifier text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  moves text := regexp_replace(explain_moves(modifier), '^(to the start of the) next ([a-z]+)$', E'\\1 \\2');
  single text := substring(moves FROM '^to (the (?:end|start) of )the ([a-z]+)$');
BEGIN
  IF single IS NULL THEN RETURN 'from run to run, ' || moves; END IF;
  RETURN regexp_replace(moves, '^to (the (?:end|start) of )the ([a-z]+)$', E'at \\1every \\2');
END $$;

-- `to the end of the month, then to the end of the day 3 days later`.
CREATE OR REPLACE FUNCTION explain_moves(modifier text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  edge text := CASE WHEN modifier ~ '^(.OD:E|E[0-9])' THEN 'end' ELSE 'start' END;
  in_time boolean := false;
  step text[];
  noun text;
  moves text[] := '{}';
BEGIN
  FOR step IN SELECT regexp_matches(regexp_replace(modifier, '^(.OD:)?.', ''), '(T?)0*([0-9]+)([YQMWDHmS])', 'g') LOOP
    in_time := in_time OR step[1] = 'T';
    noun := CASE step[3] WHEN 'Y' THEN 'year' WHEN 'Q' THEN 'quarter' WHEN 'W' THEN 'week' WHEN 'D' THEN 'day' WHEN 'H' THEN 'hour' WHEN 'm' THEN 'minute'
      WHEN 'S' THEN 'second' ELSE CASE WHEN in_time THEN 'minute' ELSE 'month' END END;
    in_time := in_time OR step[3] = 'H';
    moves := moves || format('to the %s of the %s', edge,
      CASE step[2] WHEN '0' THEN noun WHEN '1' THEN 'next ' || noun ELSE format('%s %s %ss later', noun, step[2], noun) END);
  END LOOP;
  RETURN array_to_string(moves, ', then ');
END $$;

-- Seconds of @every.
CREATE OR REPLACE FUNCTION explain_period(part text) RETURNS numeric LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN (SELECT sum(m[1]::numeric * CASE m[2] WHEN 'd' THEN 86400 WHEN 'h' THEN 3600 WHEN 'm' THEN 60 ELSE 1 END)
    FROM regexp_matches(substring(part FROM E'@every[ \t]+([0-9dhms]+)'), '([0-9]+)([dhms])', 'g') m);
END $$;

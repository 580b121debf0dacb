-- The time of day in English. A schedule that follows elapsed time is told from one that follows the wall clock by the word *every*, which only the
-- former uses; where it has no use for that, it says *by elapsed time*.

CREATE OR REPLACE FUNCTION explain_times(hours int[], minutes int[], seconds int[], by_interval boolean) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  told text;
BEGIN
  IF NOT by_interval THEN RETURN explain_by_clock(hours, minutes, seconds); END IF;
  told := explain_by_interval(hours, minutes, seconds);
  RETURN CASE WHEN told LIKE '%every%' THEN told ELSE told || ' by elapsed time' END;
END $$;

CREATE OR REPLACE FUNCTION explain_by_clock(hours int[], minutes int[], seconds int[]) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  count int := cardinality(hours) * cardinality(minutes) * cardinality(seconds);
  pace int[] := explain_pace(explain_pace(explain_pace('{0,0,0,1}', seconds, 1), minutes, 60), hours, 3600);
  items text[];
BEGIN
  IF count <= 5 THEN
    RETURN 'at ' || explain_list(ARRAY(SELECT explain_clock(h * 3600 + m * 60 + s, false) FROM unnest(hours) h, unnest(minutes) m, unnest(seconds) s ORDER BY h, m, s));
  END IF;
  IF pace IS NULL AND count = cardinality(hours) THEN
    items := explain_spans(hours, ARRAY(SELECT explain_clock(h * 3600 + minutes[1] * 60 + seconds[1], false) FROM unnest(hours) h ORDER BY h));
    RETURN CASE WHEN cardinality(items) = cardinality(hours) THEN 'at ' ELSE 'hourly at ' END || explain_list(items);
  END IF;
  IF pace IS NULL THEN
    RETURN explain_nested(explain_listed(hours, 'hour'), explain_listed(minutes, 'minute'), explain_listed(seconds, 'second'), seconds);
  END IF;
  IF pace[2] = 3600 THEN RETURN 'hourly ' || explain_from_to(pace[1], pace[3]); END IF;
  RETURN format('%s in steps of %s', explain_from_to(pace[1], pace[3]), explain_duration(pace[2]));
END $$;

CREATE OR REPLACE FUNCTION explain_by_interval(hours int[], minutes int[], seconds int[]) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  of_hour int[] := explain_pace(explain_pace('{0,0,0,1}', seconds, 1), minutes, 60);
  pace int[] := explain_pace(of_hour, hours, 3600);
BEGIN
  IF cardinality(hours) * cardinality(minutes) * cardinality(seconds) = 1 THEN
    RETURN 'at ' || explain_clock(hours[1] * 3600 + minutes[1] * 60 + seconds[1], false);
  END IF;
  IF pace IS NOT NULL THEN
    RETURN CASE WHEN pace[1] + 86400 - pace[3] <> pace[2] THEN format('%s %s', explain_every(pace[2]), explain_from_to(pace[1], pace[3]))
      WHEN pace[1] = 0 THEN explain_every(pace[2])
      WHEN pace[2] IN (60, 3600) THEN format('at %s past %s', explain_past(pace[1]), explain_every(pace[2]))
      ELSE format('%s from %s', explain_every(pace[2]), explain_clock(pace[1], false)) END;
  END IF;
  IF of_hour[4] > 1 AND of_hour[1] = 0 AND of_hour[2] + of_hour[3] = 3600 THEN
    RETURN format('%s of %s', explain_every(of_hour[2]), explain_stepped(hours, 'hour', 24));
  END IF;
  RETURN explain_nested(explain_stepped(hours, 'hour', 24), explain_stepped(minutes, 'minute', 60), explain_stepped(seconds, 'second', 60), seconds);
END $$;

-- {first, step, last, how many} of times that are evenly spaced; NULL if they are not. From those within each of some periods of `size` seconds.
CREATE OR REPLACE FUNCTION explain_pace(inner_pace int[], periods int[], size int) RETURNS int[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  count int := cardinality(periods);
  step int := CASE WHEN inner_pace[4] > 1 THEN inner_pace[2] WHEN count > 1 THEN (periods[2] - periods[1]) * size ELSE 0 END;
BEGIN
  FOR i IN 2 .. count LOOP
    IF (periods[i] - periods[i - 1]) * size + inner_pace[1] - inner_pace[3] <> step THEN RETURN NULL; END IF;
  END LOOP;
  RETURN ARRAY[periods[1] * size + inner_pace[1], step, periods[count] * size + inner_pace[3], count * inner_pace[4]];
END $$;

CREATE OR REPLACE FUNCTION explain_past(seconds int) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN concat_ws(' ', CASE WHEN seconds >= 60 THEN explain_count(seconds / 60, 'minute') END, CASE WHEN seconds % 60 > 0 THEN explain_count(seconds % 60, 'second') END);
END $$;

-- `at seconds 0 and 30 of minute 5 of hours 9 to 17`. Second 0 goes without saying, so does every hour.
CREATE OR REPLACE FUNCTION explain_nested(hour text, minute text, second text, seconds int[]) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN CASE WHEN seconds = '{0}' THEN format('at %s of %s', minute, hour)
    WHEN minute = 'every minute' AND hour = 'every hour' THEN format('at %s of %s', second, minute)
    ELSE format('at %s of %s of %s', second, minute, hour) END;
END $$;

CREATE OR REPLACE FUNCTION explain_listed(numbers int[], noun text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN format('%s%s %s', noun, CASE cardinality(numbers) WHEN 1 THEN '' ELSE 's' END, explain_list(explain_spans(numbers, numbers::text[])));
END $$;

CREATE OR REPLACE FUNCTION explain_stepped(numbers int[], noun text, size int) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  step int := explain_step(numbers);
BEGIN
  IF cardinality(numbers) = size THEN RETURN 'every ' || noun; END IF;
  IF step > 1 THEN RETURN format('every %s %s from %s to %s', explain_ordinal(step), noun, numbers[1], numbers[cardinality(numbers)]); END IF;
  RETURN explain_listed(numbers, noun);
END $$;

CREATE OR REPLACE FUNCTION explain_from_to(first int, last int) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  precise boolean := first % 60 > 0 OR last % 60 > 0;
BEGIN
  RETURN format('from %s to %s', explain_clock(first, precise), explain_clock(last, precise));
END $$;

CREATE OR REPLACE FUNCTION explain_clock(seconds int, precise boolean) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  told text := lpad((seconds / 3600)::text, 2, '0') || ':' || lpad((seconds / 60 % 60)::text, 2, '0');
BEGIN
  RETURN CASE WHEN precise OR seconds % 60 > 0 THEN told || ':' || lpad((seconds % 60)::text, 2, '0') ELSE told END;
END $$;

-- Small pieces of English: lists, ordinals, spans of numbers and of time.

-- `every hour`, `every 90 seconds`.
CREATE OR REPLACE FUNCTION explain_every(seconds numeric) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  told text := explain_duration(seconds);
BEGIN
  RETURN 'every ' || CASE WHEN told ~ '^1 [a-z]+$' THEN substr(told, 3) ELSE told END;
END $$;

-- `1 hour`, `90 seconds`, `1 day 12 hours`.
CREATE OR REPLACE FUNCTION explain_duration(seconds numeric) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  sizes int[] := '{86400,3600,60,1}';
  nouns text[] := '{day,hour,minute,second}';
  rest numeric := seconds;
  told text[] := '{}';
BEGIN
  FOR i IN 1 .. 4 LOOP
    IF seconds % sizes[i] = 0 AND (seconds / sizes[i] < 100 OR i = 1) THEN RETURN explain_count(div(seconds, sizes[i]), nouns[i]); END IF;
  END LOOP;
  FOR i IN 1 .. 4 LOOP
    IF rest >= sizes[i] THEN told := told || explain_count(div(rest, sizes[i]), nouns[i]); END IF;
    rest := rest % sizes[i];
  END LOOP;
  RETURN array_to_string(told, ' ');
END $$;

CREATE OR REPLACE FUNCTION explain_count(count numeric, noun text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN format('%s %s%s', count, noun, CASE count WHEN 1 THEN '' ELSE 's' END);
END $$;

CREATE OR REPLACE FUNCTION explain_ordinal(number int) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN number || CASE WHEN number % 100 IN (11, 12, 13) THEN 'th' ELSE CASE number % 10 WHEN 1 THEN 'st' WHEN 2 THEN 'nd' WHEN 3 THEN 'rd' ELSE 'th' END END;
END $$;

CREATE OR REPLACE FUNCTION explain_list(items text[], word text DEFAULT 'and') RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  count int := cardinality(items);
BEGIN
  RETURN CASE count WHEN 1 THEN items[1] ELSE format('%s %s %s', array_to_string(items[:count - 1], ', '), word, items[count]) END;
END $$;

-- `in March`, `in March and May`, but `from March to May`.
CREATE OR REPLACE FUNCTION explain_within(items text[]) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN CASE WHEN cardinality(items) = 1 AND items[1] LIKE '% to %' THEN 'from ' || items[1] ELSE 'in ' || explain_list(items) END;
END $$;

CREATE OR REPLACE FUNCTION explain_bits(mask bigint) RETURNS int[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  bits int[] := '{}';
BEGIN
  WHILE mask <> 0 LOOP
    bits := bits || cron_lowest(mask);
    mask := mask & (mask - 1);
  END LOOP;
  RETURN bits;
END $$;

-- The distance of evenly spaced values, of which there are at least three.
CREATE OR REPLACE FUNCTION explain_step(numbers int[]) RETURNS int LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  FOR i IN 3 .. cardinality(numbers) LOOP
    IF numbers[i] - numbers[i - 1] <> numbers[2] - numbers[1] THEN RETURN NULL; END IF;
  END LOOP;
  RETURN CASE WHEN cardinality(numbers) > 2 THEN numbers[2] - numbers[1] END;
END $$;

-- The names of numbers in order, with runs of three and more drawn together: `1`, `5 to 9`.
CREATE OR REPLACE FUNCTION explain_spans(numbers int[], names text[]) RETURNS text[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  first int := 1;                                        -- of a run, and its last
  last int;
  spans text[] := '{}';
BEGIN
  WHILE first <= cardinality(numbers) LOOP
    last := first;
    WHILE numbers[last + 1] = numbers[last] + 1 LOOP last := last + 1; END LOOP;
    spans := spans || CASE WHEN last - first > 1 THEN ARRAY[format('%s to %s', names[first], names[last])] ELSE names[first:last] END;
    first := last + 1;
  END LOOP;
  RETURN spans;
END $$;

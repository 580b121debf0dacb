-- Returns a word for how often a schedule fires, such as `daily`. Takes 401 instants from the year
-- 2000 on, and chooses the distance between neighbours that is most common, if it has more than 55
-- percent of them; else the mean distance.
CREATE OR REPLACE FUNCTION _cron_describe_frequency(cron cron)
RETURNS text
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
DECLARE
  runs bigint[] := '{}';
  words text[] := '{}';
  -- The number of seconds from 1970-01-01 to 2000-01-01.
  at bigint := 946684800;
  best record;
BEGIN
  LOOP
    at := _cron_find_next_of_any_part(cron, at);
    EXIT WHEN at IS NULL OR at > 253402300799 OR cardinality(runs) = 401;
    runs := runs || at;
    IF cardinality(runs) > 1 THEN
      words := words || _cron_describe_interval(at - runs[cardinality(runs) - 1]);
    END IF;
  END LOOP;
  IF cardinality(runs) < 2 THEN RETURN 'rare'; END IF;
  SELECT w AS word, count(*) AS times
  INTO best
  FROM unnest(words) WITH ORDINALITY u(w, i)
  GROUP BY w
  ORDER BY count(*) DESC, min(i)
  LIMIT 1;
  IF best.times > 0.55 * cardinality(words) THEN RETURN best.word; END IF;
  RETURN _cron_describe_rough_interval(
    (runs[cardinality(runs)] - runs[1] + cardinality(words) / 2) / cardinality(words));
END $$;

-- Returns the word for a distance in seconds, in the largest unit of which it is a multiple, such
-- as `hourly` for 3600.
CREATE OR REPLACE FUNCTION _cron_describe_interval(seconds bigint)
RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
  RETURN CASE
    WHEN seconds % 86400 = 0 THEN _cron_describe_units(seconds / 86400, 86400)
    WHEN seconds % 3600 = 0 THEN _cron_describe_units(seconds / 3600, 3600)
    WHEN seconds % 60 = 0 THEN _cron_describe_units(seconds / 60, 60)
    ELSE _cron_describe_rough_interval(seconds)
  END;
END $$;

-- Returns the word for a distance in seconds, rounded to the largest unit that is not longer. 8 to
-- 59 seconds count as a minute, because 8 is closer to 60 than to 1 as a ratio.
CREATE OR REPLACE FUNCTION _cron_describe_rough_interval(seconds bigint)
RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
  RETURN CASE
    WHEN seconds >= 86400 THEN _cron_describe_units((seconds + 43200) / 86400, 86400)
    WHEN seconds >= 3600 THEN _cron_describe_units((seconds + 1800) / 3600, 3600)
    WHEN seconds >= 60 THEN _cron_describe_units((seconds + 30) / 60, 60)
    WHEN seconds < 8 THEN 'every-second'
    ELSE 'every-minute'
  END;
END $$;

-- Returns the word for `count` units of 60, 3600 or 86400 seconds, such as `every-5-minutes`.
CREATE OR REPLACE FUNCTION _cron_describe_units(count bigint, size int)
RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
  RETURN CASE
    WHEN size = 60 THEN
      CASE count WHEN 1 THEN 'every-minute' ELSE format('every-%s-minutes', count) END
    WHEN size = 3600 THEN
      CASE count WHEN 1 THEN 'hourly' ELSE format('every-%s-hours', count) END
    WHEN count > 380 THEN 'rare'
    WHEN count = 1 THEN 'daily'
    WHEN count = 7 THEN 'weekly'
    WHEN count BETWEEN 26 AND 35 THEN 'monthly'
    WHEN count BETWEEN 84 AND 98 THEN 'quarterly'
    WHEN count BETWEEN 350 AND 380 THEN 'yearly'
    ELSE format('every-%s-days', count)
  END;
END $$;

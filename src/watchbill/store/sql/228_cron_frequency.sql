-- How often a schedule runs, in a word: of a few hundred runs the distance between neighbours that most have, else the mean one.
CREATE OR REPLACE FUNCTION cron_frequency(cron cron) RETURNS text LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  runs bigint[] := '{}';
  words text[] := '{}';
  at bigint := 946684800;                                -- 2000-01-01
  best record;
BEGIN
  LOOP
    at := cron_next(cron, at);
    EXIT WHEN at IS NULL OR at > 253402300799 OR cardinality(runs) = 401;
    runs := runs || at;
    IF cardinality(runs) > 1 THEN words := words || cron_distance(at - runs[cardinality(runs) - 1]); END IF;
  END LOOP;
  IF cardinality(runs) < 2 THEN RETURN 'rare'; END IF;
  SELECT w AS word, count(*) AS times INTO best FROM unnest(words) WITH ORDINALITY u(w, i) GROUP BY w ORDER BY count(*) DESC, min(i) LIMIT 1;
  IF best.times > 0.55 * cardinality(words) THEN RETURN best.word; END IF;
  RETURN cron_distance_about((runs[cardinality(runs)] - runs[1] + cardinality(words) / 2) / cardinality(words));
END $$;

-- Seconds in the largest unit that they are a multiple of.
CREATE OR REPLACE FUNCTION cron_distance(seconds bigint) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN CASE WHEN seconds % 86400 = 0 THEN cron_distance_word(seconds / 86400, 86400) WHEN seconds % 3600 = 0 THEN cron_distance_word(seconds / 3600, 3600)
    WHEN seconds % 60 = 0 THEN cron_distance_word(seconds / 60, 60) ELSE cron_distance_about(seconds) END;
END $$;

-- Seconds in the largest unit that they are longer than; 8 of them are nearer to a minute than to a second, as a ratio.
CREATE OR REPLACE FUNCTION cron_distance_about(seconds bigint) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN CASE WHEN seconds >= 86400 THEN cron_distance_word((seconds + 43200) / 86400, 86400) WHEN seconds >= 3600 THEN cron_distance_word((seconds + 1800) / 3600, 3600)
    WHEN seconds >= 60 THEN cron_distance_word((seconds + 30) / 60, 60) WHEN seconds < 8 THEN 'every-second' ELSE 'every-minute' END;
END $$;

CREATE OR REPLACE FUNCTION cron_distance_word(count bigint, size int) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN CASE
    WHEN size = 60 THEN CASE count WHEN 1 THEN 'every-minute' ELSE format('every-%s-minutes', count) END
    WHEN size = 3600 THEN CASE count WHEN 1 THEN 'hourly' ELSE format('every-%s-hours', count) END
    WHEN count > 380 THEN 'rare'
    WHEN count = 1 THEN 'daily'
    WHEN count = 7 THEN 'weekly'
    WHEN count BETWEEN 26 AND 35 THEN 'monthly'
    WHEN count BETWEEN 84 AND 98 THEN 'quarterly'
    WHEN count BETWEEN 350 AND 380 THEN 'yearly'
    ELSE format('every-%s-days', count) END;
END $$;

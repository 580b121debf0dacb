-- Parsed schedules with timestamps in and out. The schema jcron has the same for patterns.

-- Whole seconds since 1970, rounded down.
CREATE OR REPLACE FUNCTION cron_seconds(at timestamptz) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  IF at < '0001-01-01 00:00:00+00' OR at >= '10000-01-01 00:00:00+00' THEN
    RAISE EXCEPTION 'an instant outside the years 1 to 9999 in UTC' USING ERRCODE = 'WB003';
  END IF;
  RETURN floor(extract(epoch FROM at));
END $$;

-- The same, rounded up.
CREATE OR REPLACE FUNCTION cron_seconds_up(at timestamptz) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  t bigint := cron_seconds(at);
BEGIN
  RETURN CASE WHEN to_timestamp(t) = at THEN t ELSE t + 1 END;
END $$;

-- The first instant later than this one; NULL if there is none. PostgreSQL puts the expression in place of the call. What is not finite is refused behind it.
CREATE OR REPLACE FUNCTION next_run(cron cron, after timestamptz) RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE
RETURN to_timestamp(cron_after(cron, NULL, CASE isfinite(after) WHEN false THEN 253402300800 ELSE floor(extract(epoch FROM after))::bigint END, NULL));

-- The last instant earlier than this one; NULL if there is none.
CREATE OR REPLACE FUNCTION prev_run(cron cron, before timestamptz) RETURNS timestamptz LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  t bigint := cron_seconds_up(before);
  at bigint;
BEGIN
  IF t >= 253402214400 THEN t := least(t, (cron_bounds(cron))[2] + 1); END IF;
  at := cron_prev(cron, t);
  IF at < -62135510400 AND at < (cron_bounds(cron))[1] THEN RETURN NULL; END IF;
  RETURN to_timestamp(at);
END $$;

-- Whether this very instant is one of the schedule's.
CREATE OR REPLACE FUNCTION cron_matches(cron cron, at timestamptz) RETURNS boolean LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  t bigint := cron_seconds(at);
  bounds bigint[];
BEGIN
  IF to_timestamp(t) <> at THEN RETURN false; END IF;
  IF t NOT BETWEEN -62135510400 AND 253402214399 THEN
    bounds := cron_bounds(cron);
    IF t NOT BETWEEN bounds[1] AND bounds[2] THEN RETURN false; END IF;
  END IF;
  RETURN cron_prev(cron, t + 1) IS NOT DISTINCT FROM t;
END $$;

-- The next so many instants; fewer when there are no more.
CREATE OR REPLACE FUNCTION cron_upcoming(cron cron, n int, after timestamptz) RETURNS SETOF timestamptz LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  t bigint := cron_seconds(after);
BEGIN
  FOR i IN 1 .. n LOOP
    t := cron_after(cron, NULL, t, NULL);
    EXIT WHEN t IS NULL;
    RETURN NEXT to_timestamp(t);
  END LOOP;
END $$;

-- The instants from the start on, up to and not including the end.
CREATE OR REPLACE FUNCTION cron_between(cron cron, start timestamptz, "end" timestamptz) RETURNS SETOF timestamptz LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  t bigint := cron_seconds_up(start);
  stop bigint := cron_seconds_up("end");
  bounds bigint[] := cron_bounds(cron);
BEGIN
  t := greatest(t, bounds[1]) - 1;
  LOOP
    t := cron_next(cron, t);
    EXIT WHEN t IS NULL OR t >= stop OR t > bounds[2];
    RETURN NEXT to_timestamp(t);
  END LOOP;
END $$;

-- The trigger behind the next instant, and that instant: they differ where there is a modifier. One alone is counted from the argument.
CREATE OR REPLACE FUNCTION cron_window(cron cron, after timestamptz, OUT trigger timestamptz, OUT "end" timestamptz) LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  t bigint := cron_seconds(after);
  bounds bigint[] := cron_bounds(cron);
  span bigint[] := cron_span_of_all(cron, greatest(t, bounds[1] - 1));
BEGIN
  IF span[2] <= bounds[2] THEN
    trigger := CASE WHEN span[1] <= t THEN after ELSE to_timestamp(least(span[1], bounds[2])) END;
    "end" := to_timestamp(span[2]);
  END IF;
END $$;

CREATE OR REPLACE FUNCTION cron_window_length(cron cron, after timestamptz) RETURNS interval LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  RETURN (SELECT w."end" - w.trigger FROM cron_window(cron, after) w);
END $$;

-- A CHECK that names the reason raises it; one that only says no asks this.
CREATE OR REPLACE FUNCTION is_valid_cron(pattern text, tz text DEFAULT 'UTC') RETURNS boolean LANGUAGE plpgsql IMMUTABLE STRICT SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM parse_cron(pattern, tz);
  RETURN true;
EXCEPTION WHEN SQLSTATE 'WB010' THEN
  RETURN false;
END $$;

-- A whole schedule: the union of its parts.

CREATE OR REPLACE FUNCTION cron_next(c bigint[], t bigint) RETURNS bigint LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  b int := 0;
  found bigint;
BEGIN
  FOR i IN 1 .. c[26]::int LOOP
    found := least(found, CASE WHEN c[b + 23] = 0 THEN cron_trigger_after(c, b, t) ELSE (cron_span(c, b, t))[2] END);
    b := b + 27;
  END LOOP;
  RETURN found;
END $$;

CREATE OR REPLACE FUNCTION cron_prev(c bigint[], t bigint) RETURNS bigint LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  b int := 0;
  found bigint;
BEGIN
  FOR i IN 1 .. c[26]::int LOOP
    found := greatest(found, CASE WHEN c[b + 23] = 0 THEN cron_trigger_before(c, b, t) ELSE cron_result_before(c, b, t) END);
    b := b + 27;
  END LOOP;
  RETURN found;
END $$;

-- {trigger, result} behind the next instant: of the part whose result comes first.
CREATE OR REPLACE FUNCTION cron_span_of_all(c bigint[], t bigint) RETURNS bigint[] LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  b int := 0;
  span bigint[];
  best bigint[];
  at bigint;
BEGIN
  FOR i IN 1 .. c[26]::int LOOP
    IF c[b + 23] = 0 THEN
      at := cron_trigger_after(c, b, t);
      span := CASE WHEN at IS NOT NULL THEN ARRAY[at, at] END;
    ELSE
      span := cron_span(c, b, t);
    END IF;
    IF best IS NULL OR span[2] < best[2] THEN best := span; END IF;
    b := b + 27;
  END LOOP;
  RETURN best;
END $$;

-- The next instant, given any t; NULL where a zone of the schedule cannot show it as a date.
CREATE OR REPLACE FUNCTION cron_next_within(c bigint[], t bigint) RETURNS bigint LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  bounds bigint[];
  found bigint;
BEGIN
  IF t BETWEEN -62135510400 AND 253402214399 THEN
    found := cron_next(c, t);
    IF found < 253402214400 THEN RETURN found; END IF;
    bounds := cron_bounds(c);
  ELSE
    IF t NOT BETWEEN -62135596800 AND 253402300799 THEN PERFORM cron_seconds(to_timestamp(t)); END IF;
    bounds := cron_bounds(c);
    found := cron_next(c, greatest(t, bounds[1] - 1));
  END IF;
  RETURN CASE WHEN found <= bounds[2] THEN found END;
END $$;

-- The first and the last instant that all zones of a schedule can show as a date of the years 1 to 9999.
CREATE OR REPLACE FUNCTION cron_bounds(c bigint[]) RETURNS bigint[] LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  first bigint := -62135596800;
  last bigint := 253402300799;
  zone int;
BEGIN
  FOR i IN 0 .. c[26]::int LOOP
    zone := CASE i WHEN 0 THEN c[27] ELSE c[27 * i - 25] END;
    first := greatest(first, -62135596800 - (zone_segment(zone, -62135596800))[3]);
    last := least(last, 253402300799 - (zone_segment(zone, 253402300799))[3]);
  END LOOP;
  RETURN ARRAY[first, last];
END $$;

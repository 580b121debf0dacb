-- In the cron functions an instant is a number of whole seconds since 1970, in the years 1 to 9999.

-- Converts a time to whole seconds since 1970, rounded down.
CREATE OR REPLACE FUNCTION _cron_to_seconds(at timestamptz)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
  IF at < '0001-01-01 00:00:00+00' OR at >= '10000-01-01 00:00:00+00' THEN
    RAISE EXCEPTION 'the time must be in the years 1 to 9999 in UTC' USING ERRCODE = 'WB003';
  END IF;
  RETURN floor(extract(epoch FROM at));
END $$;

-- Converts a time to whole seconds since 1970, rounded up.
CREATE OR REPLACE FUNCTION _cron_round_up_to_seconds(at timestamptz)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
  t bigint := _cron_to_seconds(at);
BEGIN
  RETURN CASE WHEN to_timestamp(t) = at THEN t ELSE t + 1 END;
END $$;

-- Returns the first and the last instant at which the clocks of all zones of a schedule show a date
-- in the years 1 to 9999.
CREATE OR REPLACE FUNCTION _cron_find_time_bounds(c bigint[])
RETURNS bigint[]
LANGUAGE plpgsql STABLE STRICT AS $$
DECLARE
  first bigint := -62135596800;
  last bigint := 253402300799;
  zone int;
BEGIN
  -- Visits the schedule's own zone (b = -27), then the zones of its parts.
  FOR b IN -27 .. _cron_last_part_offset(c) BY 27 LOOP
    zone := CASE b WHEN -27 THEN c[27] ELSE _cron_part_zone(c, b) END;
    first := greatest(first, -62135596800 - (_find_zone_segment(zone, -62135596800))[3]);
    last := least(last, 253402300799 - (_find_zone_segment(zone, 253402300799))[3]);
  END LOOP;
  RETURN ARRAY[first, last];
END $$;

-- Returns the remainder of a division, which is never negative here.
CREATE OR REPLACE FUNCTION _modulo(a bigint, n bigint)
RETURNS bigint
LANGUAGE sql IMMUTABLE
RETURN (a % n + n) % n;

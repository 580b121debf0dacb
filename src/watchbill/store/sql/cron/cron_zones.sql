-- Time zones in whole seconds: the arithmetic of src/watchbill/cron/zones.py in SQL.
--
-- A zone is a number. A positive number is that of a row in the table zones; a negative number
-- stands for the fixed offset -100000 - zone. A segment is a time in which the zone's distance from
-- UTC stays the same: {start, stop, offset, high}, where `high` is the latest wall time that the
-- clock had shown before. A near segment is one of the years 2020 to 2049.

-- `watchbill db migrate` writes the zone names and the near segments as constants into four
-- functions (src/watchbill/postgres/sql/zone_write.sql). Constants are fast, and a CHECK on a
-- pattern must hold during a restore too, when the table zones is still empty. In an empty schema
-- this block creates the functions without zones. In an existing schema it creates them again as
-- they are, because the migrator drops functions that no file creates.
DO $$
BEGIN
  IF to_regprocedure('_find_near_zone_segment(int, bigint)') IS NULL THEN
    CREATE OR REPLACE FUNCTION _list_zone_names()
    RETURNS text[]
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path FROM CURRENT AS
      $f$BEGIN RETURN '{}'; END$f$;
    CREATE OR REPLACE FUNCTION _find_zone_number(name text)
    RETURNS int
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN NULL::int;
    CREATE OR REPLACE FUNCTION _find_near_zone_segment(zone int, t bigint)
    RETURNS bigint[]
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path FROM CURRENT AS
      $f$BEGIN RETURN NULL; END$f$;
    CREATE OR REPLACE FUNCTION _find_near_wall_time_instant(zone int, wall bigint)
    RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path FROM CURRENT AS
      $f$BEGIN RETURN NULL; END$f$;
  ELSE
    EXECUTE pg_get_functiondef('_list_zone_names()'::regprocedure);
    EXECUTE pg_get_functiondef('_find_zone_number(text)'::regprocedure);
    EXECUTE pg_get_functiondef('_find_near_zone_segment(int, bigint)'::regprocedure);
    EXECUTE pg_get_functiondef('_find_near_wall_time_instant(int, bigint)'::regprocedure);
  END IF;
END $$;

-- Suggests a zone for an unknown name: a zone whose name differs in case only, else a zone with
-- this city. Searches one text that contains all names, because hundreds of comparisons would be
-- slow.
CREATE OR REPLACE FUNCTION _suggest_zone(name text)
RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
  names text COLLATE "C" := ' UTC ' || array_to_string(_list_zone_names(), ' ') || ' ';
  wanted text COLLATE "C" := lower(name COLLATE "C");
  at int := strpos(lower(names), ' ' || wanted || ' ');
BEGIN
  IF strpos(name, ' ') > 0 OR octet_length(name) > 64 THEN RETURN NULL; END IF;
  IF at = 0 THEN at := strpos(lower(names), '/' || wanted || ' '); END IF;
  IF at = 0 OR wanted = '' THEN RETURN NULL; END IF;
  RETURN split_part(left(names, at), ' ', -1) || split_part(substr(names, at + 1), ' ', 1);
END $$;

-- Returns the number of a zone: of UTC, an IANA name or an offset like +05:30 (east is positive);
-- NULL for any other text.
CREATE OR REPLACE FUNCTION _parse_zone(name text)
RETURNS int
LANGUAGE sql IMMUTABLE
RETURN CASE
  WHEN name COLLATE "C" = 'UTC' THEN -100000
  WHEN name COLLATE "C" > 'A' THEN _find_zone_number(name)
  WHEN name ~ '^[+-]([01][0-9]|2[0-3]):[0-5][0-9]$' THEN
    -100000 - (left(name, 1) || '1')::int
      * (substr(name, 2, 2)::int * 3600 + substr(name, 5, 2)::int * 60)
END;

-- Returns the segment of a zone that contains the instant t.
CREATE OR REPLACE FUNCTION _find_zone_segment(zone int, t bigint)
RETURNS bigint[]
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
BEGIN
  IF zone < 0 THEN
    RETURN ARRAY[-4611686018427387904, 4611686018427387904, -100000 - zone, -4611686018427387904];
  END IF;
  RETURN coalesce(_find_near_zone_segment(zone, t), _read_zone_segment(zone, t));
END $$;

-- Reads the segment that contains the instant t from the table zones, which covers every year.
CREATE OR REPLACE FUNCTION _read_zone_segment(zone int, t bigint)
RETURNS bigint[]
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
DECLARE
  z zones;
  i int;
  shift bigint := 0;
BEGIN
  SELECT * INTO z FROM zones x WHERE x.number = zone;
  IF NOT FOUND THEN PERFORM _refuse_missing_zone(zone); END IF;
  IF t >= z.horizon THEN shift := ((t - z.horizon) / 12622780800 + 1) * 12622780800; END IF;
  i := width_bucket(t - shift, z.starts);
  RETURN ARRAY[z.starts[i] + shift, z.starts[i + 1] + shift, z.offsets[i], z.highs[i] + shift];
END $$;

-- Returns the first instant at which the zone's clock shows this wall time or a later one.
CREATE OR REPLACE FUNCTION _find_wall_time_instant(zone int, wall bigint)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
BEGIN
  IF zone < 0 THEN RETURN wall + 100000 + zone; END IF;
  RETURN coalesce(_find_near_wall_time_instant(zone, wall), _read_wall_time_instant(zone, wall));
END $$;

-- Computes what _find_wall_time_instant() returns from the table zones, which covers every year.
CREATE OR REPLACE FUNCTION _read_wall_time_instant(zone int, wall bigint)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
DECLARE
  z zones;
  i int;
  shift bigint := 0;
BEGIN
  SELECT * INTO z FROM zones x WHERE x.number = zone;
  IF NOT FOUND THEN PERFORM _refuse_missing_zone(zone); END IF;
  IF wall >= z.horizon THEN shift := ((wall - z.horizon) / 12622780800 + 1) * 12622780800; END IF;
  i := width_bucket(wall - shift, z.highs);
  RETURN shift + greatest(wall - shift - z.offsets[i], z.starts[i]);
END $$;

-- Returns the instant at which a clock that was put back shows a wall time for the second time;
-- NULL if the clock shows it only once.
CREATE OR REPLACE FUNCTION _find_second_wall_time_instant(zone int, wall bigint)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
DECLARE
  segment bigint[];
BEGIN
  IF zone < 0 THEN RETURN NULL; END IF;
  segment := _find_zone_segment(zone, _find_wall_time_instant(zone, wall));
  segment := _find_zone_segment(zone, segment[2]);
  RETURN CASE
    WHEN segment[1] + segment[3] <= wall AND wall < segment[4] THEN wall - segment[3]
  END;
END $$;

CREATE OR REPLACE FUNCTION _refuse_missing_zone(zone int)
RETURNS void
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE AS $$
BEGIN
  RAISE EXCEPTION 'the table zones has no zone with number %', zone USING
    ERRCODE = 'WB003',
    HINT = 'run `watchbill db migrate`, which fills it';
END $$;

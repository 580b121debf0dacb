-- Time zones in whole seconds; the arithmetic of src/watchbill/cron/zones.py in SQL.
--
-- A zone is a number: a positive one is a row of the table zones, a negative one is the fixed
-- offset -100000 - zone. A segment is a time with one offset: {start, stop, offset, high}, where
-- high is the wall time that the clock had reached before. Near segments are those of 2020 to 2049.

-- `watchbill db migrate` writes zone names and near segments as constants into functions
-- (src/watchbill/postgres/sql/zone_write.sql): that is fast, and a CHECK on a pattern must hold
-- during a restore, when the table zones is empty. An empty schema gets functions without zones; an
-- existing one keeps its functions, which the migrator would drop if no file created them.
DO $$
BEGIN
  IF to_regprocedure('_near_zone_segment(int, bigint)') IS NULL THEN
    CREATE OR REPLACE FUNCTION _zone_names()
    RETURNS text[]
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path FROM CURRENT AS
      $f$BEGIN RETURN '{}'; END$f$;
    CREATE OR REPLACE FUNCTION _zone_number(name text)
    RETURNS int
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN NULL::int;
    CREATE OR REPLACE FUNCTION _near_zone_segment(zone int, t bigint)
    RETURNS bigint[]
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path FROM CURRENT AS
      $f$BEGIN RETURN NULL; END$f$;
    CREATE OR REPLACE FUNCTION _near_first_instant(zone int, wall bigint)
    RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path FROM CURRENT AS
      $f$BEGIN RETURN NULL; END$f$;
  ELSE
    EXECUTE pg_get_functiondef('_zone_names()'::regprocedure);
    EXECUTE pg_get_functiondef('_zone_number(text)'::regprocedure);
    EXECUTE pg_get_functiondef('_near_zone_segment(int, bigint)'::regprocedure);
    EXECUTE pg_get_functiondef('_near_first_instant(int, bigint)'::regprocedure);
  END IF;
END $$;

-- Suggests a zone for an unknown name: one that differs in case only, else one with this city.
-- Searches one text of all names, because hundreds of comparisons would be slow.
CREATE OR REPLACE FUNCTION _suggest_zone(name text)
RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT AS $$
DECLARE
  names text COLLATE "C" := ' UTC ' || array_to_string(_zone_names(), ' ') || ' ';
  wanted text COLLATE "C" := lower(name COLLATE "C");
  at int := strpos(lower(names), ' ' || wanted || ' ');
BEGIN
  IF strpos(name, ' ') > 0 OR octet_length(name) > 64 THEN RETURN NULL; END IF;
  IF at = 0 THEN at := strpos(lower(names), '/' || wanted || ' '); END IF;
  IF at = 0 OR wanted = '' THEN RETURN NULL; END IF;
  RETURN split_part(left(names, at), ' ', -1) || split_part(substr(names, at + 1), ' ', 1);
END $$;

-- The number of UTC, an IANA name or an offset like +05:30 (east is positive); NULL for other
-- texts.
CREATE OR REPLACE FUNCTION _parse_zone(name text)
RETURNS int
LANGUAGE sql IMMUTABLE
RETURN CASE
  WHEN name COLLATE "C" = 'UTC' THEN -100000
  WHEN name COLLATE "C" > 'A' THEN _zone_number(name)
  WHEN name ~ '^[+-]([01][0-9]|2[0-3]):[0-5][0-9]$' THEN
    -100000 - (left(name, 1) || '1')::int
      * (substr(name, 2, 2)::int * 3600 + substr(name, 5, 2)::int * 60)
END;

CREATE OR REPLACE FUNCTION _zone_segment(zone int, t bigint)
RETURNS bigint[]
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT AS $$
BEGIN
  IF zone < 0 THEN
    RETURN ARRAY[-4611686018427387904, 4611686018427387904, -100000 - zone, -4611686018427387904];
  END IF;
  RETURN coalesce(_near_zone_segment(zone, t), _zone_far_segment(zone, t));
END $$;

-- Does what _zone_segment does, for every year: it reads the table zones.
CREATE OR REPLACE FUNCTION _zone_far_segment(zone int, t bigint)
RETURNS bigint[]
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT AS $$
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

-- The first instant at which the clock shows this wall time or a later one.
CREATE OR REPLACE FUNCTION _first_instant(zone int, wall bigint)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT AS $$
BEGIN
  IF zone < 0 THEN RETURN wall + 100000 + zone; END IF;
  RETURN coalesce(_near_first_instant(zone, wall), _far_first_instant(zone, wall));
END $$;

-- Does what _first_instant does, for every year: it reads the table zones.
CREATE OR REPLACE FUNCTION _far_first_instant(zone int, wall bigint)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT AS $$
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

-- The instant at which the clock, put back, shows a wall time again; NULL if it does not.
CREATE OR REPLACE FUNCTION _second_instant(zone int, wall bigint)
RETURNS bigint
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT AS $$
DECLARE
  segment bigint[];
BEGIN
  IF zone < 0 THEN RETURN NULL; END IF;
  segment := _zone_segment(zone, _first_instant(zone, wall));
  segment := _zone_segment(zone, segment[2]);
  RETURN CASE
    WHEN segment[1] + segment[3] <= wall AND wall < segment[4] THEN wall - segment[3]
  END;
END $$;

CREATE OR REPLACE FUNCTION _refuse_missing_zone(zone int)
RETURNS void
LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT AS $$
BEGIN
  RAISE EXCEPTION 'the table zones has no zone with number %', zone USING
    ERRCODE = 'WB003',
    HINT = 'run `watchbill db migrate`, which fills it';
END $$;

-- Time zones in whole seconds. A zone is a number: a positive one of the table zones, else the fixed offset -100000 - zone.
-- A segment is {start, stop, offset, high}: see src/watchbill/cron/zones.py, whose arithmetic this repeats.

-- What `watchbill db migrate` knows of the zones it writes into functions of their own, as constants: the names, since a CHECK on a pattern must hold
-- during a restore, when tables may still be empty, and the segments of the present, for speed. Until then they know none. They are made again as
-- they are, lest they count as gone from this file.
DO $$
BEGIN
  IF to_regprocedure('zone_near(int, bigint)') IS NULL THEN
    CREATE OR REPLACE FUNCTION zone_names() RETURNS text[] LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT AS $f$BEGIN RETURN '{}'; END$f$;
    CREATE OR REPLACE FUNCTION zone_number(name text) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN NULL::int;
    CREATE OR REPLACE FUNCTION zone_near(zone int, t bigint) RETURNS bigint[] LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS
      $f$BEGIN RETURN NULL; END$f$;
    CREATE OR REPLACE FUNCTION zone_near_first(zone int, wall bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS
      $f$BEGIN RETURN NULL; END$f$;
  ELSE
    EXECUTE pg_get_functiondef('zone_names()'::regprocedure);
    EXECUTE pg_get_functiondef('zone_number(text)'::regprocedure);
    EXECUTE pg_get_functiondef('zone_near(int, bigint)'::regprocedure);
    EXECUTE pg_get_functiondef('zone_near_first(int, bigint)'::regprocedure);
  END IF;
END $$;

-- A zone that differs in case only, else one whose city this is; looked for in one text of all names, as hundreds of comparisons would take long.
CREATE OR REPLACE FUNCTION zone_like(name text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  names text COLLATE "C" := ' UTC ' || array_to_string(zone_names(), ' ') || ' ';
  wanted text COLLATE "C" := lower(name COLLATE "C");
  at int := strpos(lower(names), ' ' || wanted || ' ');
BEGIN
  IF strpos(name, ' ') > 0 OR octet_length(name) > 64 THEN RETURN NULL; END IF;
  IF at = 0 THEN at := strpos(lower(names), '/' || wanted || ' '); END IF;
  IF at = 0 OR wanted = '' THEN RETURN NULL; END IF;
  RETURN split_part(left(names, at), ' ', -1) || split_part(substr(names, at + 1), ' ', 1);
END $$;

-- UTC, an IANA name or an offset like +05:30, east positive; NULL for anything else. PostgreSQL puts the expression in place of the call.
CREATE OR REPLACE FUNCTION cron_zone(name text) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
  WHEN name COLLATE "C" = 'UTC' THEN -100000
  WHEN name COLLATE "C" > 'A' THEN zone_number(name)
  WHEN name ~ '^[+-]([01][0-9]|2[0-3]):[0-5][0-9]$' THEN -100000 - (left(name, 1) || '1')::int * (substr(name, 2, 2)::int * 3600 + substr(name, 5, 2)::int * 60) END;

CREATE OR REPLACE FUNCTION zone_segment(zone int, t bigint) RETURNS bigint[] LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  IF zone < 0 THEN
    RETURN ARRAY[-4611686018427387904, 4611686018427387904, -100000 - zone, -4611686018427387904];
  END IF;
  RETURN coalesce(zone_near(zone, t), zone_far_segment(zone, t));
END $$;

-- The same for any instant, from the whole of the zone.
CREATE OR REPLACE FUNCTION zone_far_segment(zone int, t bigint) RETURNS bigint[] LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  z zones;
  i int;
  shift bigint := 0;
BEGIN
  SELECT * INTO z FROM zones x WHERE x.number = zone;
  IF NOT FOUND THEN PERFORM zone_missing(zone); END IF;
  IF t >= z.horizon THEN shift := ((t - z.horizon) / 12622780800 + 1) * 12622780800; END IF;
  i := width_bucket(t - shift, z.starts);
  RETURN ARRAY[z.starts[i] + shift, z.starts[i + 1] + shift, z.offsets[i], z.highs[i] + shift];
END $$;

-- The first instant at which the clock shows this time or a later one.
CREATE OR REPLACE FUNCTION zone_first(zone int, wall bigint) RETURNS bigint LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  IF zone < 0 THEN RETURN wall + 100000 + zone; END IF;
  RETURN coalesce(zone_near_first(zone, wall), zone_far_first(zone, wall));
END $$;

CREATE OR REPLACE FUNCTION zone_far_first(zone int, wall bigint) RETURNS bigint LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  z zones;
  i int;
  shift bigint := 0;
BEGIN
  SELECT * INTO z FROM zones x WHERE x.number = zone;
  IF NOT FOUND THEN PERFORM zone_missing(zone); END IF;
  IF wall >= z.horizon THEN shift := ((wall - z.horizon) / 12622780800 + 1) * 12622780800; END IF;
  i := width_bucket(wall - shift, z.highs);
  RETURN shift + greatest(wall - shift - z.offsets[i], z.starts[i]);
END $$;

-- The instant at which the clock, put back, shows this time again; NULL if it does not.
CREATE OR REPLACE FUNCTION zone_second(zone int, wall bigint) RETURNS bigint LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
DECLARE
  segment bigint[];
BEGIN
  IF zone < 0 THEN RETURN NULL; END IF;
  segment := zone_segment(zone, zone_first(zone, wall));
  segment := zone_segment(zone, segment[2]);
  RETURN CASE WHEN segment[1] + segment[3] <= wall AND wall < segment[4] THEN wall - segment[3] END;
END $$;

CREATE OR REPLACE FUNCTION zone_missing(zone int) RETURNS void LANGUAGE plpgsql STABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT AS $$
BEGIN
  RAISE EXCEPTION 'the table zones has no zone %', zone USING ERRCODE = 'WB003', HINT = 'run `watchbill db migrate`, which fills it';
END $$;

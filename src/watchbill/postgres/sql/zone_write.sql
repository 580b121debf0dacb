-- Writes to the table zones what was read from tzdata into read_zones
-- (src/watchbill/postgres/zones.py).
INSERT INTO zones (number, name, starts, offsets, highs, horizon, near, tzdata)
SELECT
  coalesce(
    z.number,
    (SELECT coalesce(max(number), 0) FROM zones)
    + row_number() OVER (PARTITION BY z.number IS NULL ORDER BY r.place)),
  r.name, r.starts, r.offsets, r.highs, r.horizon, r.near, r.tzdata
FROM read_zones r
LEFT JOIN zones z ON z.name = r.name
ON CONFLICT (number) DO UPDATE
SET starts = excluded.starts,
  offsets = excluded.offsets,
  highs = excluded.highs,
  horizon = excluded.horizon,
  near = excluded.near;

UPDATE zones SET tzdata = (SELECT max(tzdata) FROM read_zones);

-- Writes what schedules need often into functions, as constants, because reading a table takes ten
-- times as long. Near segments are those of the years 2020 to 2049. Most zones share them with
-- others, so there are few different sets. A search key is the number of a set, followed by an
-- instant or a wall time in 33 bits.
DO $write$
DECLARE
  names text[];
  numbers jsonb;
  sets int[];
  segments bigint[];
  starts bigint[];
  highs bigint[];
BEGIN
  SELECT
    array_agg(z.name ORDER BY r.place NULLS LAST, z.name),
    jsonb_object_agg(z.name, z.number)
  INTO names, numbers
  FROM zones z
  LEFT JOIN read_zones r ON r.name = z.name;
  SELECT array_agg(s.set ORDER BY s.number) INTO sets
  FROM (
    SELECT
      z.number, CASE WHEN z.near <> '{}' THEN dense_rank() OVER (ORDER BY z.near) END AS set
    FROM zones z) s;
  SELECT
    array_agg(u.x ORDER BY d.set, u.i),
    array_agg((d.set << 33) + u.x ORDER BY d.set, u.i) FILTER (WHERE u.i % 4 = 1),
    array_agg((d.set << 33) + u.x ORDER BY d.set, u.i) FILTER (WHERE u.i % 4 = 0)
  INTO segments, starts, highs
  FROM (SELECT DISTINCT z.near, sets[z.number]::bigint AS set FROM zones z) d,
    unnest(d.near) WITH ORDINALITY u(x, i);

  EXECUTE format($f$
CREATE OR REPLACE FUNCTION _list_zone_names()
RETURNS text[]
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN %L;
END $$$f$, names);

  EXECUTE format($f$
CREATE OR REPLACE FUNCTION _find_zone_number(name text)
RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (%L::jsonb -> name)::int$f$, numbers);

  EXECUTE format($f$
CREATE OR REPLACE FUNCTION _find_near_zone_segment(zone int, t bigint)
RETURNS bigint[]
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
DECLARE
  i int := CASE
      WHEN t >= 1577836800 AND t < 2524608000 THEN
        4 * width_bucket(((%1$L::bigint[])[zone] << 33) + t, %2$L::bigint[])
    END;
BEGIN
  RETURN (%3$L::bigint[])[i - 3:i];
END $$$f$, sets, starts, segments);

  EXECUTE format($f$
CREATE OR REPLACE FUNCTION _find_near_wall_time_instant(zone int, wall bigint)
RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
DECLARE
  i int := CASE
      WHEN wall >= 1578009600 AND wall < 2524435200 THEN
        4 * width_bucket(((%1$L::bigint[])[zone] << 33) + wall, %2$L::bigint[])
    END;
BEGIN
  RETURN greatest(wall - (%3$L::bigint[])[i - 1], (%3$L::bigint[])[i - 3]);
END $$$f$, sets, highs, segments);
END $write$;
-- Leaves out the columns that are arrays, because no query searches them.
ANALYZE zones (number, name);

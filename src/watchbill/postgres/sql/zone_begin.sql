SET LOCAL search_path = {schema}, pg_temp;
LOCK TABLE zones IN SHARE ROW EXCLUSIVE MODE;
CREATE TEMPORARY TABLE read_zones (
  place int, -- the order in which names are suggested
  name text COLLATE "C",
  starts bigint[],
  offsets int[],
  highs bigint[],
  horizon bigint,
  near bigint[],
  tzdata text COLLATE "C"
) ON COMMIT DROP;
-- These columns are not compressed, as in the table zones, because compression is slow.
ALTER TABLE read_zones
ALTER starts SET STORAGE EXTERNAL,
ALTER offsets SET STORAGE EXTERNAL,
ALTER highs SET STORAGE EXTERNAL;

-- Time zones for the cron engine: the numbers that the Python engine uses, written by
-- `watchbill db migrate`. A zone is a list of segments with one offset each:
-- see src/watchbill/cron/zones.py.

CREATE TABLE zones (
  -- Parsed schedules contain it, so the number of a name never changes.
  number int PRIMARY KEY CHECK (number > 0),
  name text COLLATE "C" NOT NULL UNIQUE,
  -- When each segment starts, in seconds since 1970.
  starts bigint[] NOT NULL,
  -- By how many seconds the clock is ahead of UTC in each segment.
  offsets int[] NOT NULL,
  -- The wall time that the clock had reached before each segment.
  highs bigint[] NOT NULL,
  -- From this instant on the segments repeat every 400 years.
  horizon bigint NOT NULL,
  -- Start, stop, offset and high of the segments of 2020 to 2049, cut at both ends.
  near bigint[] NOT NULL,
  -- The release of the time-zone data.
  tzdata text COLLATE "C" NOT NULL
);
-- Not compressed, because that is slow.
ALTER TABLE zones
ALTER starts SET STORAGE EXTERNAL,
ALTER offsets SET STORAGE EXTERNAL,
ALTER highs SET STORAGE EXTERNAL;

-- A parsed schedule; the cron parser (sql/2*.sql) describes the layout.
CREATE DOMAIN cron AS bigint[] CHECK (cardinality(VALUE) > 26);

-- Creates the table of time zones for the cron engine in SQL. `watchbill db migrate` writes the
-- numbers that the Python engine uses. A zone is a list of segments, in each of which its distance
-- from UTC stays the same: see src/watchbill/cron/zones.py.

CREATE TABLE zones (
  -- Parsed schedules contain this number, so the number of a zone name never changes.
  number int PRIMARY KEY CHECK (number > 0),
  name text COLLATE "C" NOT NULL UNIQUE,
  -- When each segment starts, in seconds since 1970.
  starts bigint[] NOT NULL,
  -- By how many seconds the clock is ahead of UTC in each segment.
  offsets int[] NOT NULL,
  -- The latest wall time that the clock had shown before each segment.
  highs bigint[] NOT NULL,
  -- From this instant on the segments repeat every 400 years.
  horizon bigint NOT NULL,
  -- Four numbers for each segment from 2020 to 2049: its first and last second, and its elements of
  -- `offsets` and `highs`. The first and the last segment are cut at these years.
  near bigint[] NOT NULL,
  -- The release of the time-zone data, such as 2025b.
  tzdata text COLLATE "C" NOT NULL
);
-- The arrays are not compressed, because reading them would be slow.
ALTER TABLE zones
ALTER starts SET STORAGE EXTERNAL,
ALTER offsets SET STORAGE EXTERNAL,
ALTER highs SET STORAGE EXTERNAL;

-- A parsed schedule is an array of numbers; sql/205_cron_layout.sql describes them.
CREATE DOMAIN cron AS bigint[] CHECK (cardinality(VALUE) > 26);

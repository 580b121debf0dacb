-- Time zones for the cron engine: the very numbers that the Python engine counts on, written by `watchbill db migrate`. A zone is a row of
-- segments with one offset each; src/watchbill/cron/zones.py says how they are used.

CREATE TABLE zones (
  number int PRIMARY KEY CHECK (number > 0),             -- stands in parsed schedules: a name keeps it for ever
  name text COLLATE "C" NOT NULL UNIQUE,
  starts bigint[] NOT NULL,                              -- from this instant on, in seconds since 1970 ...
  offsets int[] NOT NULL,                                -- ... the clock is ahead of UTC by this many seconds,
  highs bigint[] NOT NULL,                               -- and has shown, or jumped over, every time below this before
  horizon bigint NOT NULL,                               -- from here on everything repeats every 400 years
  near bigint[] NOT NULL,                                -- start, stop, offset and high of the segments of 2020 to 2049, cut at both ends
  tzdata text COLLATE "C" NOT NULL                       -- the release that it was read from
);
-- Not compressed: that would take longer than all the rest of an installation, and make each look-up slower, for three megabytes less.
ALTER TABLE zones ALTER starts SET STORAGE EXTERNAL, ALTER offsets SET STORAGE EXTERNAL, ALTER highs SET STORAGE EXTERNAL;

CREATE DOMAIN cron AS bigint[] CHECK (cardinality(VALUE) > 26);  -- a parsed schedule; sql/220_cron_parse.sql has the layout

-- Creates the tables of figures: what nodes report, how many jobs wait, what has ended by minute,
-- hour and day, and groups of failures. docs/explanation/schema.md describes them.

-- The number of the last tally that the node has reported, so that one that it sends again after a
-- lost reply does not count twice.
ALTER TABLE beats ADD COLUMN tally bigint NOT NULL DEFAULT 0;

-- What nodes have reported and _observe() has not added up yet. It is not logged: a crash of the
-- server loses the last seconds, and the hours are counted from history.
CREATE UNLOGGED TABLE node_counts (
  at timestamptz NOT NULL,
  queue text COLLATE "C" NOT NULL,
  type text COLLATE "C" NOT NULL,
  tenant text COLLATE "C" NOT NULL,
  succeeded bigint NOT NULL,
  skipped bigint NOT NULL,
  failed bigint NOT NULL,
  timed_out bigint NOT NULL,
  snoozed bigint NOT NULL,
  dead bigint NOT NULL,
  canceled bigint NOT NULL,
  run_seconds float8 NOT NULL,
  wait_seconds float8 NOT NULL
) WITH (
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);

-- `tenant` is that of a row of the dimension tenant. Other rows belong to no tenant, so row
-- security shows them only to those who see all.
CREATE TABLE rollups (
  grain text COLLATE "C" NOT NULL,
  dimension text COLLATE "C" NOT NULL,
  at timestamptz NOT NULL,
  name text COLLATE "C" NOT NULL,
  tenant text COLLATE "C",
  succeeded bigint NOT NULL,
  skipped bigint NOT NULL,
  failed bigint NOT NULL,
  timed_out bigint NOT NULL,
  lost bigint NOT NULL,
  snoozed bigint NOT NULL,
  dead bigint NOT NULL,
  canceled bigint NOT NULL,
  run_seconds float8 NOT NULL,
  wait_seconds float8 NOT NULL,
  is_counted boolean NOT NULL DEFAULT false,
  PRIMARY KEY (grain, dimension, at, name)
);

CREATE TABLE samples (
  grain text COLLATE "C" NOT NULL,
  dimension text COLLATE "C" NOT NULL,
  at timestamptz NOT NULL,
  name text COLLATE "C" NOT NULL,
  tenant text COLLATE "C",
  running bigint NOT NULL,
  ready bigint NOT NULL,
  scheduled bigint NOT NULL,
  retrying bigint NOT NULL,
  limited bigint NOT NULL,
  paused bigint NOT NULL,
  unsupported bigint NOT NULL,
  unmatched bigint NOT NULL,
  blocked bigint NOT NULL,
  oldest timestamptz, -- the run_at of the ready job that has been due for longest
  is_estimate boolean NOT NULL,
  PRIMARY KEY (grain, dimension, at, name)
);

CREATE TABLE failure_groups (
  failure bigint NOT NULL,
  tenant text COLLATE "C" NOT NULL,
  type text COLLATE "C" NOT NULL,
  exception text,
  message text NOT NULL, -- of the last attempt
  example uuid NOT NULL,
  first timestamptz NOT NULL,
  last timestamptz NOT NULL,
  attempts bigint NOT NULL,
  dead bigint NOT NULL,
  PRIMARY KEY (failure, tenant)
);
CREATE INDEX failure_groups_last ON failure_groups (last);

-- When each part of _observe() is due, and how far it has come. Who locks the row `observer` does
-- what is due.
CREATE TABLE chore_marks (
  chore text COLLATE "C" PRIMARY KEY,
  due_at timestamptz NOT NULL,
  last_at timestamptz,
  took float8, -- in seconds
  until timestamptz, -- all before this instant is done
  pace float8, -- how many seconds of history the next step reads
  unsettled_before xid8, -- older transactions may still write what is counted next
  summarized jsonb NOT NULL DEFAULT '{}', -- how many page ranges of each BRIN index are summarized
  error text
);
INSERT INTO chore_marks (chore, due_at)
SELECT c, '2000-01-01 00:00:00+00'
FROM unnest('{observer,tallies,samples,failures,summaries,history,retention}'::text[]) c;

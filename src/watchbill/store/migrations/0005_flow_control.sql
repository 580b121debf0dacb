-- Creates the tables of limits, rates, ordered keys, fair shares and routing.
-- docs/explanation/schema.md describes them.

-- Holds the queues for which something was declared. Other queues need no row.
CREATE TABLE queues (
  name text COLLATE "C" PRIMARY KEY CHECK (name <> ''),
  -- Says what the lanes of the queue's jobs mean: nothing, shares of a fair queue, or tokens.
  lanes text COLLATE "C" NOT NULL DEFAULT 'none' CHECK (lanes IN ('none', 'share', 'route')),
  fair_by text COLLATE "C",
  token_group text COLLATE "C",
  max int CHECK (max >= 0), -- jobs that run at once; NULL: no limit
  owner text COLLATE "C", -- the app that declares it; NULL: an operator has made it
  declared jsonb, -- what the code declares, so that an operator's change is recognized
  superseded jsonb[] NOT NULL DEFAULT '{}', -- earlier declarations, the latest last
  CHECK ((lanes = 'share') = (fair_by IS NOT NULL)),
  CHECK ((lanes = 'route') = (token_group IS NOT NULL))
);

-- Holds the shares of fair queues, if the weight of the share is not 1.
CREATE TABLE shares (
  queue text COLLATE "C" NOT NULL,
  lane int NOT NULL CHECK (lane > 0),
  share text COLLATE "C" NOT NULL,
  weight int NOT NULL CHECK (weight BETWEEN 1 AND 1000),
  PRIMARY KEY (queue, lane)
);

-- Holds the sets of labels that jobs ask for. Only nodes that have all labels of a set take its
-- jobs.
CREATE TABLE label_sets (
  lane int PRIMARY KEY CHECK (lane < 0),
  labels jsonb NOT NULL CHECK (jsonb_typeof(labels) = 'object')
);
CREATE UNIQUE INDEX label_sets_labels ON label_sets (labels);

-- Holds the rules of limits: at most `max` jobs of a key run at once, and at most `count` jobs
-- start in any window of the length `per`.
CREATE TABLE limits (
  -- NAME for the keys key:NAME and key:NAME:VALUE; order:TYPE for all ordered keys of a type; for
  -- other kinds of keys the key itself.
  name text COLLATE "C" PRIMARY KEY CHECK (name <> ''),
  max int CHECK (max >= 0),
  count int CHECK (count >= 1),
  per interval CHECK (per > interval '0'),
  burst int CHECK (burst BETWEEN 1 AND greatest(count - 1, 1)),
  -- What happens to a job that finds its key full: it waits, ends as canceled, or replaces jobs
  -- that wait.
  when_full text COLLATE "C" NOT NULL DEFAULT 'wait'
    CHECK (when_full IN ('wait', 'discard', 'replace')),
  -- What happens to an ordered key when one of its jobs is dead.
  when_dead text COLLATE "C" NOT NULL DEFAULT 'continue' CHECK (when_dead IN ('continue', 'pause')),
  owner text COLLATE "C", -- the app that declares it; NULL: an operator has made it
  declared jsonb, -- what the code declares, so that an operator's change is recognized
  superseded jsonb[] NOT NULL DEFAULT '{}', -- earlier declarations, the latest last
  CHECK (num_nonnulls(count, per, burst) IN (0, 3)),
  CHECK (when_full = 'wait' OR max IS NOT NULL)
);

-- Records which node declares which limit or queue, so that an older node does not undo a newer
-- declaration.
CREATE TABLE flow_declarations (
  kind text COLLATE "C" NOT NULL CHECK (kind IN ('limit', 'queue')),
  name text COLLATE "C" NOT NULL,
  epoch bigint NOT NULL,
  definition jsonb NOT NULL,
  PRIMARY KEY (kind, name, epoch)
);
CREATE INDEX flow_declarations_epoch ON flow_declarations (epoch);

-- Has one row per limit key in use. A function that changes the holds of the key, or the jobs that
-- are parked on it, locks this row first.
CREATE TABLE limit_states (
  key text COLLATE "C" PRIMARY KEY,
  name text COLLATE "C" NOT NULL, -- of the rule
  arrival timestamptz, -- of a rate: the theoretical arrival time of the next job
  next_at timestamptz, -- when a parked job may start because of the rate
  lane_cursor int -- the lane whose job started last; NULL: no job of the key was in a lane
) WITH (
  fillfactor = 50,
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 10000,
  autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX limit_states_next_at ON limit_states (next_at) WHERE next_at IS NOT NULL;

-- Lists the keys that running jobs hold. A job with an ordered key holds it until the job is
-- finished.
CREATE TABLE holds (
  key text COLLATE "C" NOT NULL,
  job_id uuid NOT NULL,
  PRIMARY KEY (key, job_id)
) WITH (
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 10000,
  autovacuum_vacuum_cost_delay = 0
);

-- Says which node takes the jobs of which lane of a routed queue, where lane = token + 1. A pin is
-- a token beyond the total of its group.
CREATE TABLE tokens (
  token_group text COLLATE "C" NOT NULL,
  token int NOT NULL CHECK (token >= 0),
  epoch bigint NOT NULL, -- its owner; 0: none
  fence bigint NOT NULL,
  next bigint, -- the epoch that it moves to; 0: none
  asked_at timestamptz, -- since when it moves
  PRIMARY KEY (token_group, token)
);
CREATE INDEX tokens_owner ON tokens (token_group, epoch, token) WHERE next IS NULL;
CREATE INDEX tokens_moving ON tokens (token_group, epoch, token) WHERE next IS NOT NULL;

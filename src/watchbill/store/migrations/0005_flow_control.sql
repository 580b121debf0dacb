-- Limits, rates, order, fair shares and routing: see docs/explanation/schema.md.

-- Queues of which something was declared; the others need no row.
CREATE TABLE queues (
  name text COLLATE "C" PRIMARY KEY CHECK (name <> ''),
  -- What the lanes of its jobs mean: nothing, shares of a fair queue, or tokens.
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

-- The shares of fair queues whose weight is not 1.
CREATE TABLE shares (
  queue text COLLATE "C" NOT NULL,
  lane int NOT NULL CHECK (lane > 0),
  share text COLLATE "C" NOT NULL,
  weight int NOT NULL CHECK (weight BETWEEN 1 AND 1000),
  PRIMARY KEY (queue, lane)
);

-- Sets of labels that jobs ask for. Only nodes that have all labels of a set take its jobs.
CREATE TABLE label_sets (
  lane int PRIMARY KEY CHECK (lane < 0),
  labels jsonb NOT NULL CHECK (jsonb_typeof(labels) = 'object')
);
CREATE UNIQUE INDEX label_sets_labels ON label_sets (labels);

-- The rules: at most `max` jobs of a key at once, and never more than `count` starts in any `per`.
CREATE TABLE limits (
  -- NAME for the keys key:NAME and key:NAME:VALUE; for other kinds of keys the key itself, and
  -- order:TYPE for all ordered keys of a type.
  name text COLLATE "C" PRIMARY KEY CHECK (name <> ''),
  max int CHECK (max >= 0),
  count int CHECK (count >= 1),
  per interval CHECK (per > interval '0'),
  burst int CHECK (burst BETWEEN 1 AND greatest(count - 1, 1)),
  -- What happens to a job that finds its key full: it waits, ends as canceled, or replaces others.
  when_full text COLLATE "C" NOT NULL DEFAULT 'wait'
    CHECK (when_full IN ('wait', 'discard', 'replace')),
  -- What happens to an ordered key when a job of it is dead.
  when_dead text COLLATE "C" NOT NULL DEFAULT 'continue' CHECK (when_dead IN ('continue', 'pause')),
  owner text COLLATE "C", -- the app that declares it; NULL: an operator has made it
  declared jsonb, -- what the code declares, so that an operator's change is recognized
  superseded jsonb[] NOT NULL DEFAULT '{}', -- earlier declarations, the latest last
  CHECK (num_nonnulls(count, per, burst) IN (0, 3)),
  CHECK (when_full = 'wait' OR max IS NOT NULL)
);

-- Which node declares which limit or queue: an older node must not undo a newer declaration.
CREATE TABLE flow_declarations (
  kind text COLLATE "C" NOT NULL CHECK (kind IN ('limit', 'queue')),
  name text COLLATE "C" NOT NULL,
  epoch bigint NOT NULL,
  definition jsonb NOT NULL,
  PRIMARY KEY (kind, name, epoch)
);
CREATE INDEX flow_declarations_epoch ON flow_declarations (epoch);

-- One row per key in use. Its lock guards the holds of the key, and the jobs that are parked on it.
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

-- The keys that running jobs hold. A job of an ordered key holds it until it is finished.
CREATE TABLE holds (
  key text COLLATE "C" NOT NULL,
  job_id uuid NOT NULL,
  PRIMARY KEY (key, job_id)
) WITH (
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 10000,
  autovacuum_vacuum_cost_delay = 0
);

-- Which node takes the jobs of which lane of a routed queue: lane = token + 1. A pin is a token
-- beyond the total of its group.
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

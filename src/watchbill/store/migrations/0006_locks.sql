-- Named locks and the election of leaders: see docs/explanation/schema.md.

CREATE TABLE locks (
  name text COLLATE "C" PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 200),
  -- Of the last grant; it stays after a release. 0: never granted.
  fence bigint NOT NULL DEFAULT 0,
  holder text, -- NULL: free
  -- A lock of a node lasts as long as the node's lease; every other one until expires_at.
  epoch bigint,
  expires_at timestamptz,
  -- Names one call of lock_acquire(), so that the same call sent again gets the same grant.
  request uuid,
  acquired_at timestamptz,
  released_at timestamptz, -- or, of a lock that was never granted, when its row was made
  -- A caller waits for the release and listens for it.
  awaited boolean NOT NULL DEFAULT false,
  CHECK (holder IS NULL OR (epoch IS NULL) = (expires_at IS NOT NULL)),
  CHECK (holder IS NULL OR fence > 0)
) WITH (
  -- Grants and releases are HOT updates, because no index has a column that they change.
  fillfactor = 50,
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX locks_epoch ON locks (epoch) WHERE epoch IS NOT NULL;

-- The nodes that may lead a group.
CREATE TABLE candidates (
  epoch bigint NOT NULL,
  group_name text COLLATE "C" NOT NULL,
  PRIMARY KEY (epoch, group_name)
);
CREATE INDEX candidates_group ON candidates (group_name, epoch);

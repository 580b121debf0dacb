-- Creates the tables of named locks and of the election of leaders. docs/explanation/schema.md
-- describes them.

CREATE TABLE locks (
  name text COLLATE "C" PRIMARY KEY CHECK (length(name) BETWEEN 1 AND 200),
  -- The fence of the last grant, which stays after a release; 0 if the lock was never granted.
  fence bigint NOT NULL DEFAULT 0,
  holder text, -- NULL: free
  -- The node that holds the lock, which then lasts as long as the node's lease. Any other lock
  -- lasts until expires_at.
  epoch bigint,
  expires_at timestamptz,
  -- Names one call of lock_acquire(), so that the same call sent again gets the same grant.
  request uuid,
  acquired_at timestamptz,
  released_at timestamptz, -- or, of a lock that was never granted, when its row was made
  -- True if a caller waits for the release of the lock and listens for a notification.
  awaited boolean NOT NULL DEFAULT false,
  CHECK (holder IS NULL OR (epoch IS NULL) = (expires_at IS NOT NULL)),
  CHECK (holder IS NULL OR fence > 0)
) WITH (
  -- Leaves room in each page, so that grants and releases are HOT updates. No index has a column
  -- that they change.
  fillfactor = 50,
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX locks_epoch ON locks (epoch) WHERE epoch IS NOT NULL;

-- Lists the nodes that may lead a group.
CREATE TABLE candidates (
  epoch bigint NOT NULL,
  group_name text COLLATE "C" NOT NULL,
  PRIMARY KEY (epoch, group_name)
);
CREATE INDEX candidates_group ON candidates (group_name, epoch);

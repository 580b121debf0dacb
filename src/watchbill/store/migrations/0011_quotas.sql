-- Creates the tables of quotas and of the erasure of tenants. docs/explanation/quotas.md explains
-- them.

-- Lists the tenants that have a quota. Other tenants need no row.
CREATE TABLE tenants (
  tenant text COLLATE "C" PRIMARY KEY CHECK (tenant <> ''),
  -- True if the jobs of the tenant have the limit key tenant:NAME. The limit of that name says how
  -- many may run at once.
  limits_running boolean NOT NULL DEFAULT false,
  max_unfinished bigint CHECK (max_unfinished >= 0),
  max_payload_bytes bigint CHECK (max_payload_bytes >= 0), -- of unfinished jobs together
  max_per_minute bigint CHECK (max_per_minute >= 0), -- enqueues
  heartbeat_budget real CHECK (heartbeat_budget >= 0), -- a minute; above it, tenant_list() says so
  -- True if jobs that were enqueued before limits_running was set may lack the key tenant:NAME.
  may_lack_keys boolean NOT NULL DEFAULT false,
  -- Only transactions before this one can have enqueued jobs that lack the key; NULL if this is not
  -- known yet.
  keyless_before xid8
);

-- Records how much of its quotas each tenant used when its jobs were counted last.
CREATE TABLE quota_usage (
  tenant text COLLATE "C" PRIMARY KEY,
  counted_at timestamptz NOT NULL,
  unfinished bigint NOT NULL,
  payload_bytes bigint NOT NULL
);

-- Records what has been enqueued since the last count. Each enqueue adds a row, so that none waits
-- for another.
CREATE TABLE quota_changes (
  tenant text COLLATE "C" NOT NULL,
  by xid8 NOT NULL,
  n int NOT NULL, -- the n-th row of the transaction
  at timestamptz NOT NULL,
  jobs bigint NOT NULL,
  payload_bytes bigint NOT NULL,
  -- The sums of all rows that this transaction has written, up to this row.
  total_jobs bigint NOT NULL,
  total_payload_bytes bigint NOT NULL,
  PRIMARY KEY (tenant, by, n)
) WITH (
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);

-- Counts the enqueues of the last minute, by second.
CREATE TABLE quota_seconds (
  tenant text COLLATE "C" NOT NULL,
  second timestamptz NOT NULL,
  jobs bigint NOT NULL,
  PRIMARY KEY (tenant, second)
);

-- Has one row, which says when jobs were counted last and how long it took. The node that counts
-- locks it.
CREATE TABLE quota_refresh (
  counted_at timestamptz, -- NULL before the first count
  took interval NOT NULL
);
INSERT INTO quota_refresh (took) VALUES ('0');

-- Lists the tenants that are being erased, and how far each erasure is.
CREATE TABLE erasures (
  tenant text COLLATE "C" PRIMARY KEY CHECK (tenant <> ''),
  started_at timestamptz NOT NULL,
  -- Only transactions before this one can enqueue without noticing the erasure; NULL if this is not
  -- known yet.
  unnoticed_before xid8,
  is_noticed boolean NOT NULL DEFAULT false, -- they have all ended
  step text COLLATE "C" NOT NULL DEFAULT 'jobs' CHECK (step IN ('jobs', 'history', 'keys')),
  -- In the step `jobs`: the id of the last job that was read, and how many jobs up to it still run.
  last_id uuid,
  remaining bigint NOT NULL DEFAULT 0,
  -- In the step `history`: the table that is read, and its first block that was not read yet.
  relation text COLLATE "C",
  block bigint NOT NULL DEFAULT 0,
  deleted jsonb NOT NULL DEFAULT '{}' -- how many rows of which kind
);

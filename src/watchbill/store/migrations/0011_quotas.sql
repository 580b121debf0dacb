-- Quotas of tenants, and the erasure of tenants: see docs/explanation/quotas.md.

-- Tenants that have a quota; all others need no row.
CREATE TABLE tenants (
  tenant text COLLATE "C" PRIMARY KEY CHECK (tenant <> ''),
  -- Its jobs have the limit key tenant:NAME. The limit of that name says how many may run at once.
  limits_running boolean NOT NULL DEFAULT false,
  max_unfinished bigint CHECK (max_unfinished >= 0),
  max_payload_bytes bigint CHECK (max_payload_bytes >= 0), -- of unfinished jobs together
  max_per_minute bigint CHECK (max_per_minute >= 0), -- enqueues
  heartbeat_budget real CHECK (heartbeat_budget >= 0), -- a minute; above it, tenant_list() says so
  -- Jobs that were enqueued before limits_running was set may lack the key tenant:NAME.
  may_lack_keys boolean NOT NULL DEFAULT false,
  -- All transactions that can have enqueued such jobs are earlier; NULL: not known yet.
  keyless_before xid8
);

-- How much tenants with a quota used when their jobs were counted last.
CREATE TABLE quota_usage (
  tenant text COLLATE "C" PRIMARY KEY,
  counted_at timestamptz NOT NULL,
  unfinished bigint NOT NULL,
  payload_bytes bigint NOT NULL
);

-- What has been enqueued since then. Each enqueue adds a row, so that none waits for another.
CREATE TABLE quota_changes (
  tenant text COLLATE "C" NOT NULL,
  by xid8 NOT NULL,
  n int NOT NULL, -- the n-th row of the transaction
  at timestamptz NOT NULL,
  jobs bigint NOT NULL,
  payload_bytes bigint NOT NULL,
  -- Of the transaction up to this row.
  total_jobs bigint NOT NULL,
  total_payload_bytes bigint NOT NULL,
  PRIMARY KEY (tenant, by, n)
) WITH (
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);

-- Enqueues of the last minute, by second.
CREATE TABLE quota_seconds (
  tenant text COLLATE "C" NOT NULL,
  second timestamptz NOT NULL,
  jobs bigint NOT NULL,
  PRIMARY KEY (tenant, second)
);

-- One row: when jobs were counted last, and how long it took. Its lock lets one node count.
CREATE TABLE quota_refresh (
  counted_at timestamptz, -- NULL before the first count
  took interval NOT NULL
);
INSERT INTO quota_refresh (took) VALUES ('0');

-- Tenants that are being erased, and how far that is.
CREATE TABLE erasures (
  tenant text COLLATE "C" PRIMARY KEY CHECK (tenant <> ''),
  started_at timestamptz NOT NULL,
  -- All transactions that can enqueue without noticing it are earlier; NULL: not known yet.
  unnoticed_before xid8,
  is_noticed boolean NOT NULL DEFAULT false, -- they have all ended
  step text COLLATE "C" NOT NULL DEFAULT 'jobs' CHECK (step IN ('jobs', 'history', 'keys')),
  -- Of the step jobs: the last one that was looked at, and how many before it still run.
  last_id uuid,
  remaining bigint NOT NULL DEFAULT 0,
  -- Of the step history: the table, and the first of its blocks that was not looked at.
  relation text COLLATE "C",
  block bigint NOT NULL DEFAULT 0,
  deleted jsonb NOT NULL DEFAULT '{}' -- how many rows of which kind
);

-- Creates the table of the steps of jobs. docs/explanation/schema.md describes it.

CREATE TABLE steps (
  job_id uuid NOT NULL,
  tenant text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL CHECK (name <> ''),
  -- The order in which the steps of the job were stored.
  seq int NOT NULL,
  kind text COLLATE "C" NOT NULL CHECK (kind IN ('run', 'sleep', 'value')),
  state text COLLATE "C" NOT NULL CHECK (state IN ('done', 'failed', 'waiting')),
  fence bigint NOT NULL, -- that the job had when this row was stored
  run int NOT NULL,
  version int NOT NULL,
  tries int NOT NULL,
  digest bigint, -- of the arguments; NULL if they are not JSON
  started_at timestamptz,
  ended_at timestamptz, -- NULL: the step goes on
  wake_at timestamptz,
  result jsonb,
  error jsonb,
  -- Jobs of two tenants may have the same id.
  PRIMARY KEY (job_id, tenant, name)
) WITH (
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 10000,
  autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0.05
);
-- Finds what a suspended job waits for, however many steps it has stored.
CREATE INDEX steps_open ON steps (job_id) WHERE ended_at IS NULL;

-- Creates the table of signals, and lets steps wait for them. docs/explanation/schema.md describes
-- it.

CREATE TABLE signals (
  job_id uuid NOT NULL,
  tenant text COLLATE "C" NOT NULL,
  -- The order in which the signals of the job were stored. It is drawn under the lock of the job.
  seq int NOT NULL,
  name text COLLATE "C" NOT NULL CHECK (name <> ''),
  key text COLLATE "C", -- a second signal of the job with the same key is not stored
  payload jsonb,
  sent_by text NOT NULL,
  at timestamptz NOT NULL,
  read_by text COLLATE "C", -- the step that has read it; NULL: unread
  -- Jobs of two tenants may have the same id.
  PRIMARY KEY (job_id, tenant, seq)
) WITH (
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 10000,
  autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0.05
);
CREATE UNIQUE INDEX signals_key ON signals (job_id, tenant, key) WHERE key IS NOT NULL;
CREATE INDEX signals_unread ON signals (job_id, tenant, seq) WHERE read_by IS NULL;

ALTER TABLE steps
  ADD COLUMN signals text[] COLLATE "C", -- the names of which it waits for the first
  ADD COLUMN ask jsonb, -- what the people who answer have to know
  DROP CONSTRAINT steps_kind_check,
  ADD CONSTRAINT steps_kind_check CHECK (kind IN ('run', 'sleep', 'value', 'signal')),
  DROP CONSTRAINT steps_state_check,
  ADD CONSTRAINT steps_state_check CHECK (state IN ('done', 'failed', 'waiting', 'timed_out'));

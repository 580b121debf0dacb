-- Creates the table of bulk operations, which change many jobs in steps.
-- docs/explanation/schema.md describes it.
CREATE TABLE bulk_operations (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind text COLLATE "C" NOT NULL
    CHECK (kind IN ('retry', 'cancel', 'release', 'purge', 'set_priority', 'move_queue')),
  state text COLLATE "C" NOT NULL DEFAULT 'running'
    CHECK (state IN ('running', 'paused', 'done', 'canceled', 'failed')),
  tenant text COLLATE "C", -- of its creator; NULL: it acts for all tenants
  filter text, -- as a person wrote it
  conditions jsonb NOT NULL,
  arguments jsonb NOT NULL,
  rate float8 CHECK (rate > 0), -- jobs per second; NULL: as fast as it goes
  max_jobs bigint CHECK (max_jobs > 0),
  idempotency_key text COLLATE "C",
  created_by text NOT NULL,
  login_role text NOT NULL DEFAULT session_user,
  created_at timestamptz NOT NULL,
  ended_at timestamptz,
  next_at timestamptz NOT NULL, -- when its next step may be done
  -- The job at which its last step ended; NULL before the first one. Each step works off jobs with
  -- smaller ids, and changes this value in the same transaction.
  reached uuid,
  seen bigint NOT NULL DEFAULT 0,
  done bigint NOT NULL DEFAULT 0,
  skipped bigint NOT NULL DEFAULT 0,
  failed bigint NOT NULL DEFAULT 0,
  reasons jsonb NOT NULL DEFAULT '{}', -- how many jobs were skipped or failed, by reason
  error text
);
CREATE INDEX bulk_operations_running ON bulk_operations (next_at) WHERE state = 'running';
CREATE INDEX bulk_operations_ended ON bulk_operations (ended_at) WHERE ended_at IS NOT NULL;
CREATE UNIQUE INDEX bulk_operations_key ON bulk_operations (tenant, created_by, idempotency_key)
NULLS NOT DISTINCT WHERE idempotency_key IS NOT NULL;

-- _survey() returns one more column from now on.
DROP FUNCTION IF EXISTS _survey(bigint, text[], timestamptz, boolean, timestamptz);

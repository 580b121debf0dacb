-- Creates the table of the servers to which connectors send requests. docs/explanation/schema.md
-- describes it.

CREATE TABLE connector_endpoints (
  tenant text COLLATE "C" NOT NULL CHECK (tenant <> ''),
  name text COLLATE "C" NOT NULL CHECK (name ~ '^[A-Za-z0-9._-]{1,100}$'),
  kind text COLLATE "C" NOT NULL DEFAULT 'http' CHECK (kind IN ('http', 'webhook')),
  base_url text NOT NULL,
  headers jsonb NOT NULL DEFAULT '{}',
  auth jsonb, -- the kind, and references to secrets; never a secret
  hosts text[] NOT NULL DEFAULT '{}', -- where its secret may go; empty: the host of base_url
  timeout real, -- seconds; NULL: what the job says
  failing_since timestamptz, -- the first failure since the last success of a delivery
  disabled_at timestamptz,
  disabled_reason text,
  owner text COLLATE "C", -- the app that declares it; NULL: an operator has made it
  declared jsonb, -- what the code declares, so that an operator's change is recognized
  superseded jsonb[] NOT NULL DEFAULT '{}', -- earlier declarations, the latest last
  created_by text NOT NULL,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  PRIMARY KEY (tenant, name),
  CHECK ((disabled_at IS NULL) = (disabled_reason IS NULL))
);

ALTER TABLE flow_declarations
  DROP CONSTRAINT flow_declarations_kind_check,
  ADD CONSTRAINT flow_declarations_kind_check CHECK (kind IN ('limit', 'queue', 'endpoint'));

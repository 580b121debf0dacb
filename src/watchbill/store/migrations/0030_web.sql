-- Creates the tables of the dashboard and the HTTP API. docs/explanation/schema.md describes them.

CREATE TABLE api_keys (
  id text COLLATE "C" PRIMARY KEY CHECK (id ~ '^[0-9A-Za-z]{8}$'), -- the public part of the key
  hash bytea NOT NULL CHECK (length(hash) = 32), -- SHA-256 of the whole key; the key is not stored
  name text COLLATE "C" NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
  role text COLLATE "C" NOT NULL
    CHECK (role IN ('reader', 'producer', 'worker', 'operator', 'admin')),
  tenant text COLLATE "C" CHECK (tenant <> ''), -- NULL: it acts for all tenants
  queues text[] NOT NULL DEFAULT '{}', -- the only ones that a producer may use; empty: all
  types text[] NOT NULL DEFAULT '{}', -- the same
  rate float8 CHECK (rate > 0), -- requests per second; NULL: the usual rate
  created_by text NOT NULL,
  login_role text NOT NULL DEFAULT session_user,
  created_at timestamptz NOT NULL,
  expires_at timestamptz,
  used_at timestamptz, -- noted once a minute
  revoked_at timestamptz,
  revoked_by text,
  CHECK (tenant IS NULL OR role IN ('reader', 'producer')),
  CHECK ((revoked_at IS NULL) = (revoked_by IS NULL))
);
-- The name of a key is the actor of what it does, so no two keys have one name at a time.
CREATE UNIQUE INDEX api_keys_name ON api_keys (name) WHERE revoked_at IS NULL;

CREATE TABLE saved_filters (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant text COLLATE "C" CHECK (tenant <> ''), -- NULL: of those who see all tenants
  page text COLLATE "C" NOT NULL CHECK (length(page) BETWEEN 1 AND 50),
  name text COLLATE "C" NOT NULL CHECK (length(name) BETWEEN 1 AND 100),
  query text NOT NULL CHECK (length(query) <= 4000),
  created_by text NOT NULL,
  created_at timestamptz NOT NULL
);
CREATE UNIQUE INDEX saved_filters_name ON saved_filters (tenant, page, name) NULLS NOT DISTINCT;

CREATE TABLE chart_marks (
  id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at timestamptz NOT NULL,
  text text NOT NULL CHECK (length(text) BETWEEN 1 AND 200),
  created_by text NOT NULL
);
CREATE INDEX chart_marks_at ON chart_marks (at);

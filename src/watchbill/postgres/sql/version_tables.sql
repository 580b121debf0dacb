-- Records which migrations have been applied. A program can use the schema if it knows the
-- migration oldest_compatible.
CREATE TABLE schema_version (
  version int PRIMARY KEY CHECK (version > 0),
  oldest_compatible int NOT NULL CHECK (oldest_compatible BETWEEN 1 AND version),
  name text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  watchbill_version text NOT NULL,
  checksum text NOT NULL
);

CREATE TABLE schema_functions (
  checksum text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  watchbill_version text NOT NULL,
  signatures text[] NOT NULL
);
CREATE UNIQUE INDEX schema_functions_is_one_row ON schema_functions ((true));

-- Creates the table of archives: days of history that were written to files before they were
-- dropped. docs/explanation/schema.md describes it.
CREATE TABLE archives (
  partition text COLLATE "C" NOT NULL, -- the name that its table had
  place text NOT NULL, -- a path or a URL
  rows bigint NOT NULL,
  bytes bigint NOT NULL, -- of the file
  sha256 bytea NOT NULL CHECK (octet_length(sha256) = 32), -- of the file
  at timestamptz NOT NULL,
  PRIMARY KEY (partition, sha256)
);

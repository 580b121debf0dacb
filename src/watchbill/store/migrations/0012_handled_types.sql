-- Records when nodes that have ended handled which types, for the setting unknown_type_grace.

-- It has no key, because nodes that end at the same time must not wait for each other. The row with
-- the latest `at` counts.
CREATE TABLE handled_types (
  type text COLLATE "C" NOT NULL,
  version int NOT NULL,
  at timestamptz NOT NULL
);
CREATE INDEX handled_types_type ON handled_types (type);

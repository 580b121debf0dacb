-- Creates the tables of jobs that wait for other jobs. docs/explanation/schema.md describes them.

CREATE TABLE dependencies (
  child uuid NOT NULL,
  parent uuid NOT NULL,
  -- The position of the parent in the child's depends_on, from 1.
  place int NOT NULL,
  -- When the child may run. All rows of a child have the same value.
  run_if text COLLATE "C" NOT NULL
    CHECK (run_if IN ('all_succeeded', 'all_finished', 'any_failed')),
  -- How the parent ended; NULL if it has not ended.
  outcome text COLLATE "C" CHECK (outcome IN ('succeeded', 'failed', 'skipped')),
  PRIMARY KEY (parent, child),
  CHECK (child <> parent)
) WITH (
  -- Leaves room in each page for a second version of each row, so that setting the outcome is a HOT
  -- update.
  fillfactor = 45,
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 10000,
  autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX dependencies_child ON dependencies (child, place);

-- Lists the jobs that unblock() has to check. The table has no key, so that two producers with the
-- same parent do not wait for each other.
CREATE TABLE dependency_checks (
  id uuid NOT NULL,
  -- Says what `id` is: the child of a job that has ended, or a parent that a producer has named.
  what text COLLATE "C" NOT NULL CHECK (what IN ('child', 'parent')),
  -- True if the job that has ended did not succeed.
  failed boolean NOT NULL DEFAULT false,
  at timestamptz NOT NULL,
  by xid8 NOT NULL DEFAULT pg_current_xact_id()
) WITH (
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX dependency_checks_id ON dependency_checks (id);
CREATE INDEX dependency_checks_at ON dependency_checks (at);

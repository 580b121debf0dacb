-- Jobs that wait for other jobs. docs/explanation/schema.md says what each table promises.

ALTER TABLE jobs ADD COLUMN awaited boolean NOT NULL DEFAULT false;   -- others wait for it: its end is told to them. In no index: set while it runs

CREATE TABLE dependencies (
  child uuid NOT NULL,
  parent uuid NOT NULL,
  place int NOT NULL,                                    -- among the child's parents, in the order given, from 1
  run_if text COLLATE "C" NOT NULL CHECK (run_if IN ('all_succeeded', 'all_finished', 'any_failed')),   -- the same for all of a child's
  outcome text COLLATE "C" CHECK (outcome IN ('succeeded', 'failed', 'skipped')),                       -- of the parent; NULL: it is not finished
  PRIMARY KEY (parent, child),
  CHECK (child <> parent)
) WITH (
  fillfactor = 45,                                       -- room for each row once more: outcome is in no index, so the end of a parent is a HOT update
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0
);
CREATE INDEX dependencies_child ON dependencies (child, place);

-- Who is to be looked at. No key: two producers that name the same parent must not wait for each other.
CREATE TABLE unblocks (
  id uuid NOT NULL,
  what text COLLATE "C" NOT NULL CHECK (what IN ('child', 'parent')),   -- a child of one that has ended; a parent that a producer has named
  failed boolean NOT NULL DEFAULT false,                 -- the one that has ended did not succeed
  at timestamptz NOT NULL,
  by xid8 NOT NULL DEFAULT pg_current_xact_id()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX unblocks_id ON unblocks (id);
CREATE INDEX unblocks_at ON unblocks (at);

-- Where the functions are there already: these take or answer more from now on, and their files make them again.
DO $$
BEGIN
  IF to_regtype('new_job') IS NOT NULL THEN
    DROP TYPE new_job CASCADE;
    DROP FUNCTION finish(ending[], bigint, timestamptz);
  END IF;
END $$;

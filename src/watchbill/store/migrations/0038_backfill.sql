-- no transaction
-- Lets bulk operations make jobs: for slots of a schedule, and of items that a caller gives.
-- docs/explanation/schema.md describes the table.

-- The constraint is checked later, without the lock that keeps ticks waiting.
ALTER TABLE slots
  DROP CONSTRAINT IF EXISTS slots_kind_check,
  ADD CONSTRAINT slots_kind_check CHECK (kind IN ('clock', 'hand', 'start', 'backfill')) NOT VALID;

ALTER TABLE slots VALIDATE CONSTRAINT slots_kind_check;

ALTER TABLE bulk_operations
  DROP CONSTRAINT IF EXISTS bulk_operations_kind_check,
  DROP CONSTRAINT IF EXISTS bulk_operations_state_check,
  ADD CONSTRAINT bulk_operations_kind_check CHECK (
    kind IN (
      'retry', 'cancel', 'release', 'purge', 'set_priority', 'move_queue', 'backfill_slots',
      'enqueue')),
  ADD CONSTRAINT bulk_operations_state_check CHECK (
    state IN ('pending', 'running', 'paused', 'done', 'canceled', 'failed')),
  -- The slot at which the last step of a backfill ended.
  ADD COLUMN IF NOT EXISTS reached_slot timestamptz;

-- What an operation of the kind `enqueue` still has to enqueue.
CREATE TABLE IF NOT EXISTS bulk_items (
  operation bigint NOT NULL,
  number bigint NOT NULL,
  tenant text COLLATE "C" NOT NULL, -- of the job
  job jsonb NOT NULL, -- an object that enqueue_many() takes
  PRIMARY KEY (operation, number)
);
CREATE INDEX IF NOT EXISTS bulk_items_tenant ON bulk_items (tenant);

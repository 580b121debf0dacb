-- Lets steps be undone when their job dies or is canceled, and lets handlers publish what they do.
ALTER TABLE steps
  ADD COLUMN has_undo boolean NOT NULL DEFAULT false,
  DROP CONSTRAINT steps_kind_check,
  ADD CONSTRAINT steps_kind_check CHECK (
    kind IN ('run', 'sleep', 'value', 'signal', 'jobs', 'undo', 'published'));

-- A job that is retried after a step has noted how it ended is found by this index too.
CREATE INDEX step_waits_by_child ON step_waits (child);
DROP INDEX step_waits_child;

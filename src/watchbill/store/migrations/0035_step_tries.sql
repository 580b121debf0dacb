-- Lets steps be tried again, begin at most once, and end with an error that they declare.
ALTER TABLE steps
  DROP CONSTRAINT steps_state_check,
  ADD CONSTRAINT steps_state_check CHECK (
    state IN ('done', 'failed', 'raised', 'timed_out', 'waiting', 'retrying', 'begun'));

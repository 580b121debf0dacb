-- oldest_compatible: 22
-- Adds when a job expires. docs/explanation/schema.md describes it. Programs of older releases copy
-- jobs with rare options into a table of the type new_job, which has two more columns now.

-- NULL: the job does not expire, or its first handler has started.
ALTER TABLE jobs ADD COLUMN expires_at timestamptz;
-- Counted from the slot.
ALTER TABLE schedules ADD COLUMN expires interval;

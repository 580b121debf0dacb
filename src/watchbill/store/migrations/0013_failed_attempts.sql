-- Counts how often the job of a slot failed before its last run, because rows of `attempts` may be
-- gone long before the slot. NULL stands for never.
ALTER TABLE slots ADD COLUMN failed_attempts smallint;
CREATE INDEX slots_retried ON slots (schedule_id) WHERE failed_attempts > 0;
ALTER TABLE pruned_slot_counts ADD COLUMN failed_attempts bigint NOT NULL DEFAULT 0;

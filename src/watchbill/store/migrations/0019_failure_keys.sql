-- Stores which group of failures a failed run belongs to, and when a run that has ended was due.
-- docs/explanation/schema.md describes the columns. Rows that exist keep NULL: PostgreSQL rewrites
-- no table, and who reads an older row computes its key.
ALTER TABLE finished_jobs ADD COLUMN failure bigint;
ALTER TABLE attempts
  ADD COLUMN failure bigint,
  ADD COLUMN due_at timestamptz;

-- dead_groups() returns more columns from now on.
DROP FUNCTION IF EXISTS dead_groups(text, text);

-- Creates the table of the jobs for which steps wait. docs/explanation/schema.md describes it.

CREATE TABLE step_waits (
  job_id uuid NOT NULL,
  tenant text COLLATE "C" NOT NULL,
  step text COLLATE "C" NOT NULL,
  place int NOT NULL, -- the order of the results
  child uuid NOT NULL, -- the job that the step waits for
  is_child boolean NOT NULL, -- the step has enqueued it, so it is canceled with the job
  -- NULL: the other job goes on.
  outcome text COLLATE "C" CHECK (outcome IN ('succeeded', 'failed', 'skipped')),
  -- Jobs of two tenants may have the same id.
  PRIMARY KEY (job_id, tenant, step, place)
);
CREATE INDEX step_waits_open ON step_waits (job_id, tenant, step) WHERE outcome IS NULL;
CREATE INDEX step_waits_child ON step_waits (child) WHERE outcome IS NULL;

ALTER TABLE steps
  DROP CONSTRAINT steps_kind_check,
  ADD CONSTRAINT steps_kind_check CHECK (kind IN ('run', 'sleep', 'value', 'signal', 'jobs'));

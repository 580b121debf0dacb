-- Creates the tables of the log lines of jobs, and of who looks at them. docs/explanation/schema.md
-- describes them.

CREATE TABLE job_logs (
  job_id uuid NOT NULL,
  run int NOT NULL,
  tenant text COLLATE "C" NOT NULL,
  ended_at timestamptz NOT NULL,
  lines text[] NOT NULL
) PARTITION BY RANGE (ended_at);
CREATE TABLE job_logs_default PARTITION OF job_logs DEFAULT;
CREATE INDEX job_logs_job_id ON job_logs (job_id, run);

-- Somebody looks at a job: until then, its node shows progress and lines each second.
CREATE TABLE watches (
  job_id uuid NOT NULL,
  tenant text COLLATE "C" NOT NULL,
  until timestamptz NOT NULL,
  PRIMARY KEY (job_id, tenant)
);

-- The last lines of a run that is watched.
ALTER TABLE runs ADD COLUMN lines text[];

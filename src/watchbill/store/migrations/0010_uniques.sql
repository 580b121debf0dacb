-- Creates the table of jobs that are unique among the jobs of their type.
-- docs/explanation/schema.md describes it.

-- Records which job has a unique key. Only enqueue() writes this table. To find out whether the key
-- is free, enqueue() reads the state of that job, so that claims and ends of jobs need not write
-- here.
CREATE TABLE uniques (
  tenant text COLLATE "C" NOT NULL,
  type text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  job_id uuid NOT NULL,
  -- How long the job has the key: `started` while it waits, `finished` until it has ended, `time`
  -- until expires_at.
  until text COLLATE "C" NOT NULL CHECK (until IN ('started', 'finished', 'time')),
  expires_at timestamptz,
  PRIMARY KEY (tenant, type, key),
  CHECK ((until = 'time') = (expires_at IS NOT NULL))
) WITH (
  -- Leaves room in each page for a second version of each row, so that a job takes a key over with
  -- a HOT update.
  fillfactor = 50,
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 10000,
  autovacuum_vacuum_cost_delay = 0
);

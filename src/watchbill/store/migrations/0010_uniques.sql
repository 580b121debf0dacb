-- Jobs that are unique among those of their type: see docs/explanation/schema.md.

-- Which job has a key. Only enqueue writes it. The key is free when that job no longer counts:
-- enqueue looks at the job itself, so that claims and ends of jobs need not write here.
CREATE TABLE uniques (
  tenant text COLLATE "C" NOT NULL,
  type text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  job_id uuid NOT NULL,
  -- started: while the job waits; finished: until it has ended; time: until expires_at.
  until text COLLATE "C" NOT NULL CHECK (until IN ('started', 'finished', 'time')),
  expires_at timestamptz,
  PRIMARY KEY (tenant, type, key),
  CHECK ((until = 'time') = (expires_at IS NOT NULL))
) WITH (
  -- Room for a second version of each row: a job that takes a key over is a HOT update.
  fillfactor = 50,
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 10000,
  autovacuum_vacuum_cost_delay = 0
);

-- Creates the table of scan positions of sessions that act for a tenant.
-- docs/explanation/schema.md describes it.

-- Records how far the claims of a node have read a queue in which the jobs of a tenant wait among
-- those of others. Only claims that had to stop before the end write it, so a tenant with a queue
-- of its own has no row here.
CREATE TABLE tenant_scans (
  epoch bigint NOT NULL,
  tenant text COLLATE "C" NOT NULL,
  queue text COLLATE "C" NOT NULL,
  lane int NOT NULL, -- the lanes up to this one are read
  -- The last job that was read in the lanes after that; NULL: none was.
  priority smallint,
  run_at timestamptz,
  job_id uuid,
  PRIMARY KEY (epoch, tenant, queue)
);

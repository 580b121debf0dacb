-- Stores the tenant of each dependency. docs/explanation/schema.md describes it.

-- Jobs of two tenants may have the same id, so the id of a child or parent does not name one job.
-- A child and its parents belong to the same tenant. Rows that exist get the default from the
-- catalog, so that PostgreSQL does not rewrite the table.
ALTER TABLE dependencies ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT 'default';
-- Without a default, a function of the last version that waits for this lock fails, rather than
-- storing the wrong tenant.
ALTER TABLE dependencies ALTER COLUMN tenant DROP DEFAULT;

-- If jobs of two tenants have the id of a child, the unfinished one needs its dependencies most.
UPDATE dependencies d
SET tenant = f.tenant
FROM finished_jobs f
WHERE f.id = d.child
  AND f.tenant <> 'default';
UPDATE dependencies d
SET tenant = j.tenant
FROM jobs j
WHERE j.id = d.child
  AND j.tenant <> d.tenant;

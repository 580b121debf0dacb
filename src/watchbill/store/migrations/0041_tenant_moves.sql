-- Creates the tables of tenants that move to another cell. docs/explanation/schema.md describes
-- them.

CREATE TABLE tenant_moves (
  tenant text COLLATE "C" PRIMARY KEY CHECK (tenant <> ''),
  move uuid NOT NULL, -- the same in both cells
  -- In the old cell: `leaving` while jobs end, `departed` once its rows are in moved_rows, `moved`
  -- at the end. In the new one: `arriving`, then `arrived` until the old cell knows it.
  state text COLLATE "C" NOT NULL
    CHECK (state IN ('leaving', 'departed', 'moved', 'arriving', 'arrived')),
  cell text COLLATE "C" NOT NULL, -- the other one
  started_at timestamptz NOT NULL,
  -- Only transactions before this one may not know that the tenant leaves; NULL if this is not
  -- known yet.
  unnoticed_before xid8,
  kept jsonb -- what was changed to stop the tenant: its limit and its schedules, as they were
);

-- The rows of a tenant between two cells.
CREATE TABLE moved_rows (
  move uuid NOT NULL,
  n bigint NOT NULL, -- the order in which they are stored in the new cell
  tenant text COLLATE "C" NOT NULL,
  what text COLLATE "C" NOT NULL, -- the table
  content jsonb NOT NULL,
  PRIMARY KEY (move, n)
);

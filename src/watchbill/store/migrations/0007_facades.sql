-- Which facades are installed, and where: see src/watchbill/store/facades.py. Their views and
-- functions can be made again from this row.
CREATE TABLE facades (
  name text COLLATE "C" PRIMARY KEY,
  schema text NOT NULL,
  prefix text NOT NULL,
  checksum text NOT NULL, -- of the files that were installed; empty: a migration has dropped them
  grants jsonb NOT NULL DEFAULT '[]', -- to grant again when they are made again
  created_schema boolean NOT NULL DEFAULT false, -- so that uninstalling drops it
  installed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Lists which facades are installed, and in which schema: see src/watchbill/store/facades.py. The
-- views and functions of a facade can be made again from its row.
CREATE TABLE facades (
  name text COLLATE "C" PRIMARY KEY,
  schema text NOT NULL,
  prefix text NOT NULL,
  checksum text NOT NULL, -- of the files that were installed; empty: a migration has dropped them
  grants jsonb NOT NULL DEFAULT '[]', -- to grant again when they are made again
  created_schema boolean NOT NULL DEFAULT false, -- so that uninstalling drops it
  installed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

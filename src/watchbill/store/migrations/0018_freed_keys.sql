-- Creates the table of limit keys that nodes are asked to look at. docs/explanation/schema.md
-- describes it.

-- A key stands here because a job that held it has ended in a transaction that must not wait for
-- the key, or because more jobs of the key can be made ready. promote() takes the keys. The
-- notification that asks for it names no key: every role of the database hears notifications, and a
-- key may hold the name of a customer. There is no primary key, so that no INSERT waits for
-- another.
CREATE TABLE freed_keys (
  key text COLLATE "C" NOT NULL
) WITH (
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
);

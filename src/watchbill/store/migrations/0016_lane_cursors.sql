-- Creates the table of the places where claims of fair and routed queues go on.
-- docs/explanation/schema.md describes it.

-- Records which lane of a queue was served last: of a fair queue by any node, of a routed queue by
-- one node. A lost row does no harm: the next claim begins with the first lane. So the cursors that
-- limit_states had under the keys turn:QUEUE and route:EPOCH:QUEUE are not copied; sweep_limits()
-- deletes them.
CREATE TABLE lane_cursors (
  epoch bigint NOT NULL, -- of the node; 0: all nodes, in a fair queue
  queue text COLLATE "C" NOT NULL,
  lane int NOT NULL,
  PRIMARY KEY (epoch, queue)
) WITH (
  fillfactor = 50,
  autovacuum_vacuum_scale_factor = 0.02,
  autovacuum_vacuum_threshold = 10000,
  autovacuum_vacuum_cost_delay = 0
);

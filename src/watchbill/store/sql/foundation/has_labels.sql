-- Says whether a node has all labels of a set. The label `node` is reserved and every node has it:
-- its value is the node's name. A worker with several processes is several nodes, such as gpu-1/1
-- and gpu-1/2, and gpu-1 names each of them.
CREATE OR REPLACE FUNCTION _has_labels(name text, labels jsonb, wanted jsonb)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN wanted ? 'node' THEN
      wanted->>'node' IN (name, regexp_replace(name, '/[0-9]+$', ''))
      AND wanted - 'node' <@ labels
    ELSE wanted <@ labels
  END;

-- Adds types and queues to those of a node, or raises the versions of types: its program has
-- declared more tasks since it registered. Locks the node's row, so that no types stay behind a
-- node that is declared lost at the same time.
CREATE OR REPLACE FUNCTION extend_node(
  epoch bigint,
  types jsonb DEFAULT '{}',
  queues text[] DEFAULT '{}'
)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
BEGIN
  PERFORM _check_shared_change('extend_node');
  PERFORM _check_node_types(extend_node.types);
  UPDATE nodes n
  -- A node that did not say at its registration which queues it serves does not say it now.
  SET queues = CASE
      WHEN n.queues IS NOT NULL THEN n.queues || ARRAY(
        SELECT DISTINCT q
        FROM unnest(extend_node.queues) q
        WHERE q <> ALL (n.queues)
        ORDER BY q)
    END
  WHERE n.epoch = extend_node.epoch
    AND n.state IN ('active', 'draining');
  IF NOT FOUND THEN
    RAISE EXCEPTION 'node % is lost', extend_node.epoch
      USING ERRCODE = 'WB001', HINT = 'register again; other nodes run the jobs that it held';
  END IF;
  INSERT INTO node_types AS nt (epoch, type, version)
  SELECT extend_node.epoch, k.key, k.value::int
  FROM jsonb_each_text(coalesce(extend_node.types, '{}')) k
  ON CONFLICT (epoch, type) DO UPDATE
  SET version = EXCLUDED.version
  WHERE nt.version < EXCLUDED.version;
END $$;

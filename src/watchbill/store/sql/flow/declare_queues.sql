-- Writes the queues that a node's code declares, as declare_limits() does for limits. Each element
-- is an object with name, max, fair_by and shares (an object of share and weight). A queue that
-- holds jobs cannot become fair, or stop being fair, because its jobs have the other kind of lanes:
-- then its outcome is `refused`, and nothing changes. Takes an advisory lock per app, and locks the
-- queues.
CREATE OR REPLACE FUNCTION declare_queues(
  epoch bigint,
  queues jsonb,
  now timestamptz DEFAULT NULL
)
RETURNS TABLE (name text, outcome text)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  node nodes := _lock_declaring_node(epoch);
  definition jsonb;
  old queues;
  new_lanes text;
BEGIN
  PERFORM _check_shared_change('declare_queues');
  PERFORM _check_limit_declarations('queues', queues);
  FOR definition IN
    SELECT d
    FROM jsonb_array_elements(queues) d
    ORDER BY d->>'name' COLLATE "C"
  LOOP
    name := definition->>'name';
    definition := definition - 'name';
    PERFORM _check_queue(name, definition);
    SELECT * INTO old FROM queues q WHERE q.name = name FOR UPDATE;
    outcome := CASE
      WHEN old.name IS NULL THEN 'created'
      WHEN old.owner IS NULL AND old.lanes = 'route' THEN 'foreign'
      ELSE _decide_declaration_outcome(
        node, 'queue', name, definition, old.owner, old.declared, old.superseded)
    END;
    new_lanes := CASE WHEN definition ? 'fair_by' THEN 'share' ELSE 'none' END;
    IF outcome IN ('created', 'updated')
      AND (new_lanes <> coalesce(old.lanes, 'none')
        OR definition->>'fair_by' IS DISTINCT FROM old.fair_by)
      AND EXISTS (SELECT FROM jobs j WHERE j.queue = name) THEN
      outcome := 'refused';
    END IF;
    IF outcome IN ('created', 'updated') THEN
      INSERT INTO queues (name, lanes, fair_by, max, owner, declared, superseded)
      VALUES (
        name, new_lanes, definition->>'fair_by', (definition->>'max')::int, node.app, definition,
        _list_superseded_versions(old.superseded, old.declared, definition))
      ON CONFLICT ON CONSTRAINT queues_pkey DO UPDATE
      SET
        lanes = EXCLUDED.lanes,
        fair_by = EXCLUDED.fair_by,
        max = EXCLUDED.max,
        owner = EXCLUDED.owner,
        declared = EXCLUDED.declared,
        superseded = EXCLUDED.superseded;
      DELETE FROM shares s WHERE s.queue = name;
      IF definition ? 'shares' THEN
        PERFORM _write_queue_shares(name, definition->'shares');
      END IF;
      PERFORM _wake_workers(name);
    END IF;
    PERFORM _record_limit_declaration(node, 'queue', name, definition);
    RETURN NEXT;
  END LOOP;
END $$;

-- Stores the shares of a queue whose weight is not 1. `given` is an object of share and weight.
CREATE OR REPLACE FUNCTION _write_queue_shares(queue text, given jsonb)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  INSERT INTO shares (queue, lane, share, weight)
  SELECT queue, _make_share_lane(s.key), s.key, s.value::int
  FROM jsonb_each_text(given) s
  WHERE s.value::int <> 1;
END $$;

CREATE OR REPLACE FUNCTION _check_queue(name text, definition jsonb)
RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF length(name) NOT BETWEEN 1 AND 100 THEN
    RAISE EXCEPTION 'queue % is invalid', quote_literal(name)
      USING ERRCODE = 'WB003', HINT = 'a queue has 1 to 100 characters';
  ELSIF (definition->>'max')::numeric NOT BETWEEN 0 AND 2147483647 THEN
    RAISE EXCEPTION 'queue % is invalid: max is %', quote_literal(name), definition->>'max'
      USING ERRCODE = 'WB003', HINT = 'give how many of its jobs may run at once: 0 or more';
  ELSIF definition ? 'shares' AND NOT definition ? 'fair_by' THEN
    RAISE EXCEPTION 'queue % is invalid: it has shares, but no fair_by', quote_literal(name)
      USING ERRCODE = 'WB003', HINT = 'give fair_by, such as {tenant}';
  ELSIF EXISTS (
    SELECT
    FROM jsonb_each_text(coalesce(definition->'shares', '{}')) s
    WHERE s.value::numeric NOT BETWEEN 1 AND 1000) THEN
    RAISE EXCEPTION 'queue % is invalid: a share must be a whole number from 1 to 1000',
      quote_literal(name)
      USING ERRCODE = 'WB003';
  END IF;
END $$;

-- Writes the limits and queues that a producer's code declares, if they do not exist yet. An App
-- calls this before its first job with a limit, because perhaps no node has started so far. Waits
-- for another producer that writes the same limits. Tenants share limits and queues, so with row
-- security only a caller that sees all tenants writes them; for any other caller this does nothing,
-- and the nodes declare them.
CREATE OR REPLACE FUNCTION ensure_limits(app text, limits jsonb, queues jsonb)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  rule limits;
  definition jsonb;
BEGIN
  IF NOT _acts_for_all_tenants() THEN RETURN; END IF;
  PERFORM _check_limit_declarations('limits', limits);
  PERFORM _check_limit_declarations('queues', queues);
  FOR rule IN
    SELECT r.*
    FROM jsonb_array_elements(limits) d
    CROSS JOIN LATERAL _read_limit_definition(
      d || jsonb_build_object(
        'owner', app, 'declared', d - 'name', 'superseded', '[]'::jsonb,
        'when_full', coalesce(d->>'when_full', 'wait'),
        'when_dead', coalesce(d->>'when_dead', 'continue'))) r
    ORDER BY r.name
  LOOP
    PERFORM _check_limit(rule);
    IF _is_tenant_key(rule.name) AND NOT _sees_tenant(_key_tenant(rule.name)) THEN
      PERFORM _refuse_tenant(_key_tenant(rule.name));
    END IF;
    INSERT INTO limits SELECT rule.* ON CONFLICT DO NOTHING;
  END LOOP;
  PERFORM _check_queue(d->>'name', d - 'name') FROM jsonb_array_elements(queues) d;
  FOR definition IN
    SELECT d
    FROM jsonb_array_elements(queues) d
    WHERE NOT EXISTS (SELECT FROM queues q WHERE q.name = d->>'name')
    ORDER BY d->>'name' COLLATE "C"
  LOOP
    -- A queue that holds jobs cannot become fair. declare_queues() reports that to the node.
    CONTINUE WHEN definition ? 'fair_by'
      AND EXISTS (SELECT FROM jobs j WHERE j.queue = definition->>'name');
    INSERT INTO queues (name, lanes, fair_by, max, owner, declared)
    VALUES (
      definition->>'name', CASE WHEN definition ? 'fair_by' THEN 'share' ELSE 'none' END,
      definition->>'fair_by', (definition->>'max')::int, app, definition - 'name')
    ON CONFLICT DO NOTHING;
    IF FOUND AND definition ? 'shares' THEN
      PERFORM _write_queue_shares(definition->>'name', definition->'shares');
    END IF;
  END LOOP;
END $$;

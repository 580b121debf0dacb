-- Changes a limit, or makes one. Changes only the values that are given. The change lasts until the
-- code declares something else, or until clear_limit(). The name queue:NAME stands for the limit of
-- a queue. Jobs that the new limit allows become ready. Locks the limit, then the states of its
-- keys.
CREATE OR REPLACE FUNCTION set_limit(
  name text,
  max int DEFAULT NULL,
  rates jsonb DEFAULT NULL,
  when_full text DEFAULT NULL,
  when_dead text DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  rule limits;
BEGIN
  IF name IS NULL THEN
    RAISE EXCEPTION 'set_limit needs the name of a limit'
      USING ERRCODE = 'WB003', HINT = 'limit_list() has the limits';
  ELSIF num_nonnulls(max, rates, when_full, when_dead) = 0 THEN
    RAISE EXCEPTION 'set_limit needs something to change'
      USING ERRCODE = 'WB003', HINT = 'give max, or rates, for example';
  END IF;
  IF _is_tenant_key(name) THEN
    PERFORM _check_sees_all_tenants(_key_tenant(name));
  END IF;
  PERFORM _check_shared_change('set_limit');
  PERFORM _audit(
    'set_limit', 'limit ' || name, NULL,
    jsonb_strip_nulls(jsonb_build_object(
      'max', max, 'rates', rates, 'when_full', when_full, 'when_dead', when_dead)),
    t);
  IF _is_queue_key(name) THEN
    PERFORM _set_queue_limit(
      _key_queue(name), max, num_nonnulls(rates, when_full, when_dead) > 0);
    RETURN;
  END IF;
  IF when_dead IS NOT NULL AND NOT _is_order_key(name) THEN
    RAISE EXCEPTION 'limit % is invalid: only ordered keys have when_dead', quote_literal(name)
      USING ERRCODE = 'WB003', HINT = 'give order:TYPE, with %3A for a colon in the type';
  END IF;
  SELECT * INTO rule FROM limits l WHERE l.name = name FOR UPDATE;
  rule.name := name;
  rule.max := coalesce(max, rule.max);
  IF rates IS NOT NULL THEN rule.rates := _read_rates(name, rates); END IF;
  rule.when_full := coalesce(when_full, rule.when_full);
  rule.when_dead := coalesce(when_dead, rule.when_dead);
  PERFORM _write_limit(rule, t);
END $$;

-- Sets how many jobs of a queue may run at once. Locks the queue.
CREATE OR REPLACE FUNCTION _set_queue_limit(queue text, max int, has_others boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF max IS NULL OR has_others THEN
    RAISE EXCEPTION 'limit % is invalid: a queue has a max, and nothing else',
      quote_literal(_queue_key(queue))
      USING ERRCODE = 'WB003', HINT = 'give max only';
  END IF;
  PERFORM _check_queue(queue, jsonb_build_object('max', max));
  INSERT INTO queues (name, max)
  VALUES (queue, max)
  ON CONFLICT (name) DO UPDATE SET max = EXCLUDED.max;
  PERFORM _wake_workers(queue);
END $$;

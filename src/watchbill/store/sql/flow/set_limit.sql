-- Changes a limit, or makes one. Changes only the values that are given. The change lasts until the
-- code declares something else, or until clear_limit(). The name queue:NAME stands for the limit of
-- a queue. Jobs that the new limit allows become ready. Locks the limit, then the states of its
-- keys.
CREATE OR REPLACE FUNCTION set_limit(
  name text,
  max int DEFAULT NULL,
  count int DEFAULT NULL,
  per interval DEFAULT NULL,
  burst int DEFAULT NULL,
  when_full text DEFAULT NULL,
  when_dead text DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := _clock(set_limit.now);
  rule limits;
BEGIN
  IF set_limit.name IS NULL THEN
    RAISE EXCEPTION 'set_limit needs the name of a limit'
      USING ERRCODE = 'WB003', HINT = 'limit_list() has the limits';
  ELSIF num_nonnulls(
    set_limit.max, set_limit.count, set_limit.per, set_limit.burst, set_limit.when_full,
    set_limit.when_dead) = 0 THEN
    RAISE EXCEPTION 'set_limit needs something to change'
      USING ERRCODE = 'WB003', HINT = 'give max, or count and per, for example';
  END IF;
  IF starts_with(set_limit.name, 'tenant:') THEN
    PERFORM _check_sees_all_tenants(substr(set_limit.name, 8));
  END IF;
  PERFORM _check_shared_change('set_limit');
  PERFORM _audit(
    'set_limit', 'limit ' || set_limit.name, NULL,
    jsonb_strip_nulls(jsonb_build_object(
      'max', set_limit.max, 'count', set_limit.count, 'per', set_limit.per, 'burst',
      set_limit.burst, 'when_full', set_limit.when_full, 'when_dead', set_limit.when_dead)),
    t);
  IF starts_with(set_limit.name, 'queue:') THEN
    PERFORM _set_queue_limit(
      substr(set_limit.name, 7), set_limit.max,
      num_nonnulls(
        set_limit.count, set_limit.per, set_limit.burst, set_limit.when_full, set_limit.when_dead)
      > 0);
    RETURN;
  END IF;
  IF set_limit.when_dead IS NOT NULL AND NOT starts_with(set_limit.name, 'order:') THEN
    RAISE EXCEPTION 'limit % is invalid: only ordered keys have when_dead',
      quote_literal(set_limit.name)
      USING ERRCODE = 'WB003', HINT = 'give order:TYPE, with %3A for a colon in the type';
  END IF;
  SELECT * INTO rule FROM limits l WHERE l.name = set_limit.name FOR UPDATE;
  rule.name := set_limit.name;
  rule.max := coalesce(set_limit.max, rule.max);
  rule.count := coalesce(set_limit.count, rule.count);
  rule.per := coalesce(set_limit.per, rule.per);
  rule.burst := coalesce(set_limit.burst, rule.burst);
  rule.when_full := coalesce(set_limit.when_full, rule.when_full);
  rule.when_dead := coalesce(set_limit.when_dead, rule.when_dead);
  PERFORM _write_limit(rule, t);
END $$;

-- Sets how many jobs of a queue may run at once. Locks the queue.
CREATE OR REPLACE FUNCTION _set_queue_limit(queue text, max int, has_others boolean)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
BEGIN
  IF _set_queue_limit.max IS NULL OR has_others THEN
    RAISE EXCEPTION 'limit % is invalid: a queue has a max, and nothing else',
      quote_literal('queue:' || queue)
      USING ERRCODE = 'WB003', HINT = 'give max only';
  END IF;
  PERFORM _check_queue(queue, jsonb_build_object('max', _set_queue_limit.max));
  INSERT INTO queues (name, max)
  VALUES (queue, _set_queue_limit.max)
  ON CONFLICT (name) DO UPDATE SET max = EXCLUDED.max;
  PERFORM _wake_workers(queue);
END $$;

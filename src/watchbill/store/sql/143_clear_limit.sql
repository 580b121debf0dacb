-- Undoes set_limit(): the limit is again what the code declares. A limit that no code declares is
-- removed. The name queue:NAME stands for the limit of a queue. With the key of an ordered task
-- (order:TYPE:VALUE) that a dead job keeps, frees the key, so that the next job runs. Locks the
-- limit, then the states of its keys.
CREATE OR REPLACE FUNCTION clear_limit(name text, now timestamptz DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := coalesce(clear_limit.now, _clock());
  rule limits;
  is_changed boolean := true;
BEGIN
  IF starts_with(clear_limit.name, 'tenant:') THEN
    PERFORM _check_sees_all_tenants(substr(clear_limit.name, 8));
  END IF;
  PERFORM _check_shared_change('clear_limit');
  IF starts_with(clear_limit.name, 'queue:') THEN
    UPDATE queues q
    SET max = (q.declared->>'max')::int
    WHERE q.name = substr(clear_limit.name, 7)
      AND q.max IS DISTINCT FROM (q.declared->>'max')::int;
    is_changed := FOUND;
    PERFORM _wake_workers(substr(clear_limit.name, 7));
  ELSIF clear_limit.name ~ '^order:.+:' THEN
    is_changed := _free_ordered_key(clear_limit.name, t);
  ELSE
    SELECT * INTO rule FROM limits l WHERE l.name = clear_limit.name FOR UPDATE;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'limit % is invalid: it was not declared', quote_literal(clear_limit.name)
        USING ERRCODE = 'WB003', HINT = 'limit_list() has the limits';
    ELSIF rule.declared IS NULL THEN
      DELETE FROM limits l WHERE l.name = clear_limit.name;
      PERFORM _unpark_jobs_of_limit(clear_limit.name, t);
    ELSIF NOT _is_limit_changed(rule) THEN
      is_changed := false;
    ELSE
      PERFORM _write_limit(
        jsonb_populate_record(
          NULL::limits,
          rule.declared || jsonb_build_object(
            'name', rule.name, 'owner', rule.owner, 'declared', rule.declared, 'superseded',
            to_jsonb(rule.superseded))),
        t);
    END IF;
  END IF;
  IF is_changed THEN
    PERFORM _audit('clear_limit', 'limit ' || clear_limit.name, NULL, NULL, t);
  END IF;
  RETURN is_changed;
END $$;

-- Says whether an operator has changed what the code declares.
CREATE OR REPLACE FUNCTION _is_limit_changed(rule limits)
RETURNS boolean
LANGUAGE sql IMMUTABLE
SET search_path FROM CURRENT
AS $$
  SELECT (d.max, d.count, d.per, d.burst, coalesce(d.when_full, 'wait'),
      coalesce(d.when_dead, 'continue'))
    IS DISTINCT FROM (rule.max, rule.count, rule.per, rule.burst, rule.when_full, rule.when_dead)
  FROM jsonb_populate_record(NULL::limits, rule.declared) d
$$;

-- Takes an ordered key from a dead job that keeps it. Locks the state of the key.
CREATE OR REPLACE FUNCTION _free_ordered_key(key text, t timestamptz)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
BEGIN
  PERFORM FROM limit_states s WHERE s.key = _free_ordered_key.key FOR UPDATE;
  DELETE FROM holds h
  WHERE h.key = _free_ordered_key.key
    AND NOT EXISTS (SELECT FROM jobs j WHERE j.id = h.job_id);
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM unpark(ARRAY[_free_ordered_key.key], t);
  RETURN true;
END $$;

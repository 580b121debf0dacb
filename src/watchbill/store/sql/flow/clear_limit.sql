-- Undoes set_limit(): the limit is again what the code declares. Removes a limit that no code has
-- declared, and one without changes that the code no longer declares. The name queue:NAME stands
-- for the limit of a queue. With the key of an ordered task (order:TYPE:VALUE) that a dead job
-- keeps, frees the key, so that the next job runs. Locks the limit, then the states of its keys.
CREATE OR REPLACE FUNCTION clear_limit(name text, now timestamptz DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  IF _is_tenant_key(name) THEN
    PERFORM _check_sees_all_tenants(_key_tenant(name));
  END IF;
  PERFORM _check_shared_change('clear_limit');
  RETURN _clear_limit_at(name, _clock(now));
END $$;

-- Clears a limit at the time `t`, for a caller that may change what tenants share.
CREATE OR REPLACE FUNCTION _clear_limit_at(name text, t timestamptz)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  rule limits;
  is_changed boolean := true;
BEGIN
  IF _is_queue_key(name) THEN
    UPDATE queues q
    SET max = (q.declared->>'max')::int
    WHERE q.name = _key_queue(name)
      AND q.max IS DISTINCT FROM (q.declared->>'max')::int;
    is_changed := FOUND;
    -- An operator has made it.
    DELETE FROM queues q
    WHERE q.name = _key_queue(name)
      AND q.declared IS NULL
      AND q.lanes = 'none';
    PERFORM _wake_workers(_key_queue(name));
  ELSIF name ~ '^order:.+:' THEN
    is_changed := _free_ordered_key(name, t);
  ELSE
    SELECT * INTO rule FROM limits l WHERE l.name = name FOR UPDATE;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'limit % is invalid: it was not declared', quote_literal(name)
        USING ERRCODE = 'WB003', HINT = 'limit_list() has the limits';
    ELSIF rule.declared IS NULL OR _is_limit_abandoned(rule) THEN
      DELETE FROM limits l WHERE l.name = name;
      PERFORM _unpark_jobs_of_limit(name, t);
    ELSIF NOT _is_limit_changed(rule) THEN
      is_changed := false;
    ELSE
      PERFORM _write_limit(
        _read_limit_definition(
          rule.declared || jsonb_build_object(
            'name', rule.name, 'owner', rule.owner, 'declared', rule.declared, 'superseded',
            to_jsonb(rule.superseded))),
        t);
    END IF;
  END IF;
  IF is_changed THEN
    PERFORM _audit('clear_limit', 'limit ' || name, NULL, NULL, t);
  END IF;
  RETURN is_changed;
END $$;

-- Says whether an operator has changed what the code declares.
CREATE OR REPLACE FUNCTION _is_limit_changed(rule limits)
RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  d limits := _read_limit_definition(rule.declared);
BEGIN
  RETURN (d.max, d.rates, coalesce(d.when_full, 'wait'), coalesce(d.when_dead, 'continue'))
    IS DISTINCT FROM (rule.max, rule.rates, rule.when_full, rule.when_dead);
END $$;

-- Says whether the code no longer declares a limit that it declared once: nodes run, and none of
-- them declares it. While no node runs, that is not known. A node of another app counts only if
-- it declares the same; otherwise it takes the limit over: _has_stale_limit_declaration(). What an
-- operator has changed is undone first, because the nodes of the owner may just be stopped.
CREATE OR REPLACE FUNCTION _is_limit_abandoned(rule limits)
RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT NOT _is_limit_changed(rule)
    AND EXISTS (
      SELECT FROM nodes n WHERE n.state IN ('active', 'draining') AND n.app IS NOT NULL)
    AND NOT EXISTS (
      SELECT
      FROM flow_declarations d
      JOIN nodes n USING (epoch)
      WHERE d.kind = 'limit'
        AND d.name = rule.name
        AND n.state IN ('active', 'draining')
        AND (n.app = rule.owner OR d.definition = rule.declared))
$$;

-- Takes an ordered key from a dead job that keeps it. Locks the state of the key.
CREATE OR REPLACE FUNCTION _free_ordered_key(key text, t timestamptz)
RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
BEGIN
  PERFORM FROM limit_states s WHERE s.key = key FOR UPDATE;
  DELETE FROM holds h
  WHERE h.key = key
    AND NOT EXISTS (SELECT FROM jobs j WHERE j.id = h.job_id);
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM _unpark_keys(ARRAY[key], t);
  RETURN true;
END $$;

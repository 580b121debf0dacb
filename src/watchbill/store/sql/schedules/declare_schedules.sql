-- Writes the schedules that a node's code declares. A node calls this after it has registered. What
-- an operator has changed stays until the code changes. During a rolling deploy an old node does
-- not undo a newer declaration. _store_declared_schedules() says what is locked.
CREATE OR REPLACE FUNCTION declare_schedules(
  epoch bigint,
  schedules jsonb,
  now timestamptz DEFAULT NULL
)
RETURNS TABLE (name text, id bigint, outcome text)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  PERFORM _check_command_of_caller(d)
  FROM jsonb_path_query(schedules, '$[*] ? (@.type() == "object")') d;
  RETURN QUERY
    SELECT s.name, s.id, s.outcome
    FROM _store_declared_schedules(epoch, schedules, now) s;
END $$;

-- Writes the declared schedules. Runs with the rights of the owner. Locks the node FOR NO KEY
-- UPDATE, then takes an advisory lock per app.
CREATE OR REPLACE FUNCTION _store_declared_schedules(epoch bigint, schedules jsonb, now timestamptz)
RETURNS TABLE (name text, id bigint, outcome text)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := _clock(_store_declared_schedules.now);
  node nodes;
  starts boolean;
  definition jsonb;
BEGIN
  PERFORM _check_shared_change('_store_declared_schedules');
  IF jsonb_typeof(_store_declared_schedules.schedules) <> 'array'
    OR EXISTS (
      SELECT
      FROM jsonb_path_query(_store_declared_schedules.schedules, '$[*]') d
      WHERE jsonb_typeof(d) <> 'object'
        OR d->>'hash' IS NULL) THEN
    RAISE EXCEPTION 'schedules is invalid: it must be a JSON array of definitions, each with a hash'
      USING ERRCODE = 'WB003';
  END IF;
  SELECT *
  INTO node
  FROM nodes n
  WHERE n.epoch = _store_declared_schedules.epoch
    AND n.state IN ('active', 'draining')
  FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the node with epoch % is lost', _store_declared_schedules.epoch
      USING ERRCODE = 'WB001', HINT = 'register again before you declare schedules';
  ELSIF node.app IS NULL THEN
    RAISE EXCEPTION 'node % has no app, and a declaration needs an owner', node.name
      USING ERRCODE = 'WB003', HINT = 'register it with app => ...';
  END IF;
  PERFORM _take_lock(_lock_class_declarations(), hashtext('schedules'::regclass::oid || node.app));
  starts := CASE
    WHEN (_find_first_registration(node)).declared_at IS NOT NULL THEN false
    ELSE _has_started_cluster(node)
  END;
  FOR definition IN
    SELECT d
    FROM jsonb_array_elements(_store_declared_schedules.schedules) WITH ORDINALITY e(d, n)
    ORDER BY e.n
  LOOP
    name := definition->>'name';
    SELECT w.id, w.outcome INTO id, outcome FROM _declare_schedule(node, definition, t) w;
    IF outcome <> 'foreign' THEN
      INSERT INTO declarations (epoch, schedule_id, hash)
      VALUES (node.epoch, id, definition->>'hash')
      ON CONFLICT (schedule_id, epoch) DO UPDATE SET hash = EXCLUDED.hash;
    END IF;
    RETURN NEXT;
  END LOOP;
  UPDATE nodes n SET declared_at = coalesce(n.declared_at, t) WHERE n.epoch = node.epoch;
  PERFORM _release_orphans();
  IF starts THEN
    PERFORM _run_schedule_outside_slots(_lock_schedule_to_run(s, t), 'start', NULL, t)
    FROM _find_on_start_schedules(node.epoch) s;
  ELSIF starts IS NULL AND EXISTS (SELECT FROM _find_on_start_schedules(node.epoch)) THEN
    -- Asks all live nodes for a heartbeat, so that start_cluster() can decide whether the cluster
    -- has just started.
    PERFORM pg_notify(_wake_channel(), 'beat');
  END IF;
END $$;

-- Writes one declared schedule. Locks the schedule FOR UPDATE.
CREATE OR REPLACE FUNCTION _declare_schedule(
  node nodes, definition jsonb, t timestamptz, OUT id bigint, OUT outcome text
)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  given text := definition->>'hash';
  s schedules := _build_schedule(definition - 'hash', t);
  old schedules;
BEGIN
  SELECT *
  INTO old
  FROM schedules x
  WHERE x.tenant = s.tenant
    AND x.name = s.name
  FOR UPDATE;
  id := old.id;
  outcome := CASE
    WHEN id IS NOT NULL AND old.owner IS DISTINCT FROM node.app THEN 'foreign'
    WHEN old.hash = given THEN 'unchanged'
    WHEN _is_schedule_superseded(old, given, node.epoch) THEN 'superseded'
  END;
  IF outcome IS NOT NULL THEN RETURN; END IF;
  s.hash := given;
  s.declared_definition := _make_schedule_definition(s);
  IF id IS NOT NULL THEN
    outcome := 'updated';
    s.id := id;
    s.created_by := old.created_by;
    s.superseded_hashes := (array_remove(old.superseded_hashes, given) || old.hash)
      [greatest(1, cardinality(old.superseded_hashes) - 98):];
    PERFORM _write_schedule(s);
    RETURN;
  END IF;
  outcome := 'created';
  s.owner := node.app;
  s.created_by := coalesce(definition->>'created_by', node.app);
  INSERT INTO schedules
  SELECT s.*
  ON CONFLICT (tenant, name) DO NOTHING
  RETURNING schedules.id INTO id;
  -- Without an id: another transaction has inserted a schedule with this name since the SELECT.
  IF id IS NULL THEN
    outcome := 'foreign';
    id := (SELECT x.id FROM schedules x WHERE x.tenant = s.tenant AND x.name = s.name);
  END IF;
END $$;

-- Says whether another live node declares a later version of the schedule than this hash. s.hash is
-- the latest version; superseded_hashes are the earlier versions, in order.
CREATE OR REPLACE FUNCTION _is_schedule_superseded(s schedules, hash text, epoch bigint)
RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT EXISTS (
    SELECT
    FROM declarations d
    JOIN nodes n USING (epoch)
    WHERE d.schedule_id = s.id
      AND n.epoch <> _is_schedule_superseded.epoch
      AND n.state IN ('active', 'draining')
      AND array_position(s.superseded_hashes || s.hash, d.hash)
        > array_position(s.superseded_hashes || s.hash, _is_schedule_superseded.hash))
$$;

-- Says whether a node should declare its schedules, limits and queues again. That is so if another
-- version is in force, and no live node declares a later version than this node does, because the
-- newer nodes have ended.
CREATE OR REPLACE FUNCTION _has_stale_declaration(epoch bigint)
RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT EXISTS (
    SELECT
    FROM declarations d
    JOIN schedules s ON s.id = d.schedule_id
    WHERE d.epoch = _has_stale_declaration.epoch
      AND d.hash <> s.hash
      AND NOT _is_schedule_superseded(s, d.hash, d.epoch))
    OR _has_stale_limit_declaration(_has_stale_declaration.epoch)
$$;

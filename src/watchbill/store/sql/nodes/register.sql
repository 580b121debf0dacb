-- Registers a node and returns its epoch. With take_over, a living node of the same name is
-- declared lost: its jobs are reclaimed, and everything that it still sends is refused. Locks the
-- beat and the row of that node.
CREATE OR REPLACE FUNCTION register(
  name text,
  lease interval DEFAULT '30 seconds',
  app text DEFAULT NULL,
  types jsonb DEFAULT '{}',
  labels jsonb DEFAULT '{}',
  host text DEFAULT NULL,
  pid int DEFAULT NULL,
  instance uuid DEFAULT NULL,
  watchbill_version text DEFAULT NULL,
  queues text[] DEFAULT NULL,
  machine text DEFAULT NULL,
  capacity int DEFAULT NULL,
  take_over boolean DEFAULT false,
  now timestamptz DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_column
DECLARE
  t timestamptz := _clock(register.now);
  e bigint;
BEGIN
  PERFORM _check_shared_change('register');
  IF coalesce(length(register.name), 0) NOT BETWEEN 1 AND 200 THEN
    RAISE EXCEPTION 'a node name of % characters is invalid', coalesce(length(register.name), 0)
      USING ERRCODE = 'WB003', HINT = 'give a name of 1 to 200 characters';
  ELSIF (register.lease BETWEEN interval '1 second' AND interval '1 day') IS NOT TRUE THEN
    RAISE EXCEPTION 'a lease of % is invalid', coalesce(register.lease::text, 'NULL')
      USING ERRCODE = 'WB003',
        HINT = 'give 1 second to 1 day: how long the jobs of a dead node wait';
  ELSIF register.labels ? 'node' THEN
    RAISE EXCEPTION 'the label node is reserved: it is the name of the node'
      USING ERRCODE = 'WB003', HINT = 'give the name as name, or give the label another name';
  END IF;
  PERFORM _check_node_types(register.types);
  PERFORM _adopt_database();
  IF register.take_over THEN
    PERFORM _take_over_name(register.name, register.instance, t);
  END IF;
  e := _next_fence();
  INSERT INTO nodes (
    epoch, name, app, host, pid, instance, lease, labels, machine, capacity, watchbill_version,
    queues, started_at)
  VALUES (
    e, register.name, register.app, register.host, register.pid,
    coalesce(register.instance, gen_random_uuid()), register.lease,
    coalesce(register.labels, '{}'), register.machine, register.capacity,
    register.watchbill_version, register.queues, t)
  ON CONFLICT (name) WHERE state IN ('active', 'draining') DO NOTHING;
  IF NOT FOUND THEN
    SELECT n.epoch INTO e
    FROM nodes n
    WHERE n.name = register.name
      AND n.state = 'active'
      AND n.instance = register.instance;
    -- The process sent the same call again, because it got no reply.
    IF FOUND THEN RETURN e; END IF;
    RAISE EXCEPTION 'a node named % is alive', quote_literal(register.name)
      USING ERRCODE = 'WB002',
        -- NULL would raise another error.
        DETAIL = coalesce((
          SELECT format('epoch %s, host %s, pid %s, last beat %s', n.epoch, n.host, n.pid, b.at)
          FROM nodes n
          LEFT JOIN beats b USING (epoch)
          WHERE n.name = register.name
            AND n.state IN ('active', 'draining')), 'it has just left'),
        HINT = 'give another name, wait until its lease has run out, or take it over';
  END IF;
  INSERT INTO beats (epoch, at) VALUES (e, t);
  INSERT INTO node_types (epoch, type, version)
  SELECT e, k.key, k.value::int
  FROM jsonb_each_text(coalesce(register.types, '{}')) k;
  RETURN e;
END $$;

-- Declares the living node of this name lost, unless it is the same process: then its registration
-- was sent again.
CREATE OR REPLACE FUNCTION _take_over_name(name text, instance uuid, t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  old bigint;
BEGIN
  SELECT nd.epoch INTO old
  FROM nodes nd
  JOIN beats b ON b.epoch = nd.epoch
  WHERE nd.name = name
    AND nd.state IN ('active', 'draining')
    AND nd.instance IS DISTINCT FROM instance
  FOR UPDATE OF b, nd;
  IF NOT FOUND THEN RETURN; END IF;
  PERFORM _mark_node_lost(old, t);
  PERFORM _audit('take_over', 'node ' || name, NULL, jsonb_build_object('epoch', old), t);
  -- The old node learns of its loss from its next heartbeat.
  PERFORM pg_notify(_wake_channel(), 'beat');
END $$;

-- Refuses types that are not an object of versions.
CREATE OR REPLACE FUNCTION _check_node_types(types jsonb)
RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF jsonb_typeof(types) <> 'object'
      OR jsonb_path_exists(
        types,
        'strict $.* ? (@.type() != "number" || @ < 1 || @ > 2147483647 || @.floor() != @)',
        silent => true) THEN
    RAISE EXCEPTION 'types % is invalid', types
      USING ERRCODE = 'WB003',
        HINT = 'give an object: each type with the newest version of its payload, '
          'as in {"mail.send": 1}';
  END IF;
END $$;

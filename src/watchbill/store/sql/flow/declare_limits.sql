-- Writes the limits that a node's code declares. A node calls this after it has registered. Each
-- element of `limits` is an object with the columns of the table limits; `rates` is a list of
-- objects with `count`, `per` (an interval, or seconds) and `evenly`. What an operator has
-- changed stays until the code changes. During a rolling deploy an old node does not undo a newer
-- declaration. Takes an advisory lock per app, and locks the limits.
CREATE OR REPLACE FUNCTION declare_limits(
  epoch bigint,
  limits jsonb,
  now timestamptz DEFAULT NULL
)
RETURNS TABLE (name text, outcome text)
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  node nodes := _lock_declaring_node(epoch);
  definition jsonb;
  old limits;
BEGIN
  PERFORM _check_shared_change('declare_limits');
  PERFORM _check_limit_declarations('limits', limits);
  FOR definition IN
    SELECT d
    FROM jsonb_array_elements(limits) d
    ORDER BY d->>'name' COLLATE "C"
  LOOP
    name := definition->>'name';
    definition := definition - 'name';
    SELECT * INTO old FROM limits l WHERE l.name = name FOR UPDATE;
    outcome := CASE
      WHEN old.name IS NULL THEN 'created'
      ELSE _decide_declaration_outcome(
        node, 'limit', name, definition, old.owner, old.declared, old.superseded)
    END;
    IF outcome IN ('created', 'updated') THEN
      PERFORM _write_limit(
        _read_limit_definition(
          definition || jsonb_build_object(
            'name', name, 'owner', node.app, 'declared', definition, 'superseded',
            to_jsonb(_list_superseded_versions(old.superseded, old.declared, definition)))),
        t);
    END IF;
    PERFORM _record_limit_declaration(node, 'limit', name, definition);
    RETURN NEXT;
  END LOOP;
END $$;

-- Returns the node that declares limits or queues; raises if it is not alive. Locks the node's row
-- FOR NO KEY UPDATE, then takes an advisory lock per app.
CREATE OR REPLACE FUNCTION _lock_declaring_node(epoch bigint)
RETURNS nodes
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  node nodes;
BEGIN
  SELECT *
  INTO node
  FROM nodes n
  WHERE n.epoch = epoch
    AND n.state IN ('active', 'draining')
  FOR NO KEY UPDATE;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the node with epoch % is lost', epoch
      USING ERRCODE = 'WB001', HINT = 'register again before you declare limits or queues';
  ELSIF node.app IS NULL THEN
    RAISE EXCEPTION 'node % has no app, and a declaration needs an owner', node.name
      USING ERRCODE = 'WB003', HINT = 'register it with app => ...';
  END IF;
  PERFORM _take_lock(_lock_class_declarations(), hashtext('limits'::regclass::oid || node.app));
  RETURN node;
END $$;

CREATE OR REPLACE FUNCTION _check_limit_declarations(what text, given jsonb)
RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF jsonb_typeof(given) <> 'array'
    OR EXISTS (
      SELECT
      FROM jsonb_path_query(given, '$[*]') d
      WHERE jsonb_typeof(d) <> 'object'
        OR d->>'name' IS NULL) THEN
    RAISE EXCEPTION '% is invalid: it must be a JSON array of objects, each with a name', what
      USING ERRCODE = 'WB003';
  END IF;
END $$;

-- Says what becomes of a declaration whose limit or queue exists already: `updated`, `unchanged`,
-- `superseded` (a living node declares a later version) or `foreign` (another app, or an operator,
-- has made the row).
CREATE OR REPLACE FUNCTION _decide_declaration_outcome(
  node nodes,
  kind text,
  name text,
  given jsonb,
  owner text,
  declared jsonb,
  superseded jsonb[]
)
RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT CASE
      WHEN declared = given THEN 'unchanged'
      WHEN owner IS DISTINCT FROM node.app THEN 'foreign'
      WHEN EXISTS (
        SELECT
        FROM flow_declarations d
        JOIN nodes n USING (epoch)
        WHERE d.kind = _decide_declaration_outcome.kind
          AND d.name = _decide_declaration_outcome.name
          AND n.epoch <> node.epoch
          AND n.state IN ('active', 'draining')
          AND array_position(superseded || declared, d.definition)
            > array_position(superseded || declared, given)) THEN 'superseded'
      ELSE 'updated'
    END
$$;

-- Returns the earlier versions that the declaration `given` supersedes, at most 20, the latest
-- last.
CREATE OR REPLACE FUNCTION _list_superseded_versions(
  superseded jsonb[],
  declared jsonb,
  given jsonb
)
RETURNS jsonb[]
LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(
    (array_remove(superseded, given) || declared)[greatest(1, cardinality(superseded) - 18):], '{}')
$$;

-- Records what a living node declares, so that _decide_declaration_outcome(), clear_limit() and
-- _has_stale_limit_declaration() find it.
CREATE OR REPLACE FUNCTION _record_limit_declaration(
  node nodes,
  kind text,
  name text,
  definition jsonb
)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  INSERT INTO flow_declarations (kind, name, epoch, definition)
  VALUES (kind, name, node.epoch, definition)
  ON CONFLICT ON CONSTRAINT flow_declarations_pkey
    DO UPDATE SET definition = EXCLUDED.definition;
END $$;

-- Says whether a node should declare its limits and queues again. That is so if an operator has
-- removed a limit that the node declares, or if another version is in force, and no living node
-- declares a later version than this node does, because the newer nodes have ended.
CREATE OR REPLACE FUNCTION _has_stale_limit_declaration(epoch bigint)
RETURNS boolean
LANGUAGE sql STABLE AS $$
  SELECT EXISTS (
    SELECT
    FROM flow_declarations d
    JOIN nodes n USING (epoch)
    LEFT JOIN (
      SELECT 'limit' AS kind, l.name, l.owner, l.declared, l.superseded FROM limits l
      UNION ALL
      SELECT 'queue', q.name, q.owner, q.declared, q.superseded FROM queues q
      UNION ALL
      SELECT
        'endpoint', _endpoint_limit(e.tenant, e.name), e.owner, e.declared, e.superseded
      FROM connector_endpoints e) r
      ON r.kind = d.kind AND r.name = d.name
    WHERE d.epoch = _has_stale_limit_declaration.epoch
      AND CASE
        -- A queue that was refused does not exist either.
        WHEN r.name IS NULL THEN d.kind <> 'queue'
        ELSE _decide_declaration_outcome(
          n, d.kind, d.name, d.definition, r.owner, r.declared, r.superseded) = 'updated'
      END)
$$;

-- Writes a limit and makes jobs ready that the new limit allows. Locks the limit, then the states
-- of its keys.
CREATE OR REPLACE FUNCTION _write_limit(rule limits, t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  rule.when_full := coalesce(rule.when_full, 'wait');
  rule.when_dead := coalesce(rule.when_dead, 'continue');
  rule.superseded := coalesce(rule.superseded, '{}');
  PERFORM _check_limit(rule);
  INSERT INTO limits
  SELECT rule.*
  ON CONFLICT (name) DO UPDATE
  SET
    max = EXCLUDED.max,
    rates = EXCLUDED.rates,
    when_full = EXCLUDED.when_full,
    when_dead = EXCLUDED.when_dead,
    owner = EXCLUDED.owner,
    declared = EXCLUDED.declared,
    superseded = EXCLUDED.superseded;
  PERFORM _unpark_jobs_of_limit(rule.name, t);
END $$;

-- Returns the limit that a declaration describes. Programs of earlier releases declare one rate by
-- `count`, `per` and a `burst`.
CREATE OR REPLACE FUNCTION _read_limit_definition(definition jsonb)
RETURNS limits
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  rule limits := jsonb_populate_record(NULL::limits, definition - 'rates');
BEGIN
  rule.rates := _read_rates(rule.name, CASE
      WHEN definition ? 'count' THEN jsonb_build_array(jsonb_build_object(
        'count', definition->'count', 'per', definition->'per', 'evenly', true))
      ELSE definition->'rates'
    END);
  RETURN rule;
END $$;

-- Returns a list of rates as values, the shortest window first; NULL: none. A window is measured in
-- hours, not in days, which may have 23 or 25.
CREATE OR REPLACE FUNCTION _read_rates(name text, given jsonb)
RETURNS rate[]
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF jsonb_typeof(given) <> 'array'
    OR jsonb_path_exists(given, '$[*] ? (@.type() != "object")')
    OR jsonb_path_exists(
      given, '$[*].keyvalue() ? (@.key != "count" && @.key != "per" && @.key != "evenly")') THEN
    RAISE data_exception;
  END IF;
  RETURN (
    SELECT array_agg(
        ROW(
          r.count, make_interval(secs => extract(epoch FROM r.per)::float8),
          coalesce(r.evenly, false))::rate
        ORDER BY r.per)
    FROM jsonb_populate_recordset(NULL::rate, given) r);
EXCEPTION WHEN data_exception THEN
  RAISE EXCEPTION 'limit % is invalid: rates is %', quote_literal(name), given
    USING ERRCODE = 'WB003',
      HINT = 'give a list such as [{"count": 10, "per": "1 minute"}], with "evenly": true for '
        'starts that are spaced';
END $$;

-- Returns rates as they are given, with `per` in seconds.
CREATE OR REPLACE FUNCTION _show_rates(rates rate[])
RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
  SELECT jsonb_agg(jsonb_build_object(
    'count', r.count, 'per', extract(epoch FROM r.per), 'evenly', r.evenly))
  FROM unnest(rates) r
$$;

-- Makes jobs ready that wait for a limit, as many as the limit allows now.
CREATE OR REPLACE FUNCTION _unpark_jobs_of_limit(name text, t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
#variable_conflict use_variable
DECLARE
  found text[] := ARRAY(SELECT s.key FROM limit_states s WHERE s.name = name);
BEGIN
  IF cardinality(found) > 0 THEN PERFORM _unpark_keys(found, t); END IF;
  -- promote() would look at them for ever.
  UPDATE limit_states s
  SET next_at = NULL
  WHERE s.name = name
    AND s.next_at IS NOT NULL
    AND NOT EXISTS (SELECT FROM limits l WHERE l.name = name AND l.rates IS NOT NULL);
END $$;

CREATE OR REPLACE FUNCTION _check_limit(rule limits)
RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  is_kind boolean := rule.name ~ '^(task|tenant|order):.';
BEGIN
  IF length(rule.name) NOT BETWEEN 1 AND 220
    OR rule.name IN ('task', 'tenant')
    OR (NOT is_kind AND rule.name ~ '[:{}]') THEN
    RAISE EXCEPTION 'limit % is invalid',
      CASE
        WHEN length(rule.name) <= 220 THEN quote_literal(rule.name)
        ELSE format('with a name of %s characters', length(rule.name))
      END
      USING ERRCODE = 'WB003',
        HINT = 'a name has 1 to 220 characters and no colon or brace; task:TYPE and tenant:NAME '
          'are the limits of a task and of a tenant';
  ELSIF rule.name ~ '^order:.*:' THEN
    RAISE EXCEPTION 'limit % is invalid: it names a key, and the rule belongs to a type',
      quote_literal(rule.name)
      USING ERRCODE = 'WB003', HINT = 'give order:TYPE, with %3A for a colon in the type';
  ELSIF rule.max < 0 THEN
    RAISE EXCEPTION 'limit % is invalid: max is %', quote_literal(rule.name), rule.max
      USING ERRCODE = 'WB003', HINT = 'give how many jobs may run at once: 0 or more';
  ELSIF EXISTS (
      SELECT
      FROM unnest(rule.rates) r
      WHERE (r.count >= 1 AND r.per > interval '0' AND r.per <= interval '366 days') IS NOT TRUE)
    OR (SELECT count(DISTINCT r.per) < count(*) FROM unnest(rule.rates) r) THEN
    RAISE EXCEPTION 'limit % is invalid: rates is %', quote_literal(rule.name),
      _show_rates(rule.rates)
      USING ERRCODE = 'WB003',
        HINT = 'a rate needs count (1 or more) and per (more than 0, and at most 366 days), and '
          'each of several rates needs another per';
  ELSIF rule.when_full NOT IN ('wait', 'discard', 'replace')
    OR rule.when_dead NOT IN ('continue', 'pause') THEN
    RAISE EXCEPTION 'limit % is invalid: when_full is %, when_dead is %',
      quote_literal(rule.name), rule.when_full, rule.when_dead
      USING ERRCODE = 'WB003',
        HINT = 'when_full is wait, discard or replace; when_dead is continue or pause';
  ELSIF rule.when_full <> 'wait' AND rule.max IS NULL THEN
    RAISE EXCEPTION 'limit % is invalid: when_full is %, but it has no max',
      quote_literal(rule.name), rule.when_full
      USING ERRCODE = 'WB003', HINT = 'give max, or let jobs wait';
  ELSIF _is_order_key(rule.name) AND num_nonnulls(rule.max, rule.rates) > 0 THEN
    RAISE EXCEPTION 'limit % is invalid: jobs of an ordered key run one at a time',
      quote_literal(rule.name)
      USING ERRCODE = 'WB003', HINT = 'give when_dead only';
  ELSIF num_nonnulls(rule.max, rule.rates) = 0 AND NOT _is_order_key(rule.name) THEN
    RAISE EXCEPTION 'limit % is invalid: it has neither a max nor a rate', quote_literal(rule.name)
      USING ERRCODE = 'WB003', HINT = 'give max, or rates';
  END IF;
END $$;

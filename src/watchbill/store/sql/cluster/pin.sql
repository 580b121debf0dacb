-- Pins keys to nodes, and returns how many keys. Each element of `wanted` is an object: key,
-- pattern (of node names, as in LIKE) or labels, and optionally reason. Several elements with one
-- key are alternatives in their order: the first that matches a member counts. They replace the
-- alternatives that the key has, or with append come after these.
--
-- A pin is a token of its own. It starts with the owner of the key's token, and moves like every
-- other token; nothing else moves with it. Locks the row of the group, and the jobs of the keys.
CREATE OR REPLACE FUNCTION pin(
  token_group text,
  wanted jsonb,
  created_by text DEFAULT NULL,
  expires_in interval DEFAULT NULL,
  append boolean DEFAULT false,
  now timestamptz DEFAULT NULL
)
RETURNS int
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  t timestamptz := _clock(now);
  creator text := coalesce(created_by, _actor());
  g token_groups;
  keys text[];
  pin_tokens int[];
  last_ranks int[];
BEGIN
  PERFORM _check_shared_change('pin');
  PERFORM _check_pins(wanted, expires_in);
  g := _lock_group(token_group);
  keys := ARRAY(SELECT DISTINCT w->>'key' FROM jsonb_array_elements(wanted) w ORDER BY 1);
  pin_tokens := _make_pin_tokens(g, keys);
  last_ranks := ARRAY(
    SELECT CASE WHEN append THEN coalesce(max(p.rank) FILTER (WHERE p.state = 'active'), 0)
      ELSE 0 END
    FROM unnest(keys) WITH ORDINALITY k(key, place)
    LEFT JOIN pins p ON p.token_group = g.name AND p.key = k.key
    GROUP BY k.place
    ORDER BY k.place);
  DELETE FROM pins p
  WHERE p.token_group = g.name
    AND p.key = ANY (keys)
    AND (NOT append OR p.state <> 'active');
  INSERT INTO pins (
    token_group, key, rank, token, pattern, labels, reason, created_by, created_at, expires_at)
  SELECT
    g.name, k.key, k.last_rank + row_number() OVER (PARTITION BY k.key ORDER BY e.place), k.token,
    e.w->>'pattern', nullif(e.w->'labels', 'null'), e.w->>'reason', creator, t, t + expires_in
  FROM jsonb_array_elements(wanted) WITH ORDINALITY e(w, place)
  JOIN unnest(keys, pin_tokens, last_ranks) k(key, token, last_rank) ON k.key = e.w->>'key';
  PERFORM _move_keys(
    g.name, keys,
    ARRAY(
      SELECT _token_of(k.key, g.total, g.hash)
      FROM unnest(keys) WITH ORDINALITY k(key, place)
      ORDER BY k.place),
    pin_tokens);
  PERFORM _note_pins(g, 'pin', format('%s keys of group %s', cardinality(keys), g.name), t);
  RETURN cardinality(keys);
END $$;

CREATE OR REPLACE FUNCTION _check_pins(wanted jsonb, expires_in interval)
RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  invalid jsonb;
BEGIN
  SELECT w INTO invalid
  FROM jsonb_array_elements(
    CASE jsonb_typeof(wanted) WHEN 'array' THEN wanted ELSE '[null]' END) w
  WHERE jsonb_typeof(w) <> 'object'
    OR coalesce(jsonb_typeof(w->'key'), '') <> 'string'
    OR w->>'key' = ''
    OR num_nonnulls(w->>'pattern', w->>'labels') <> 1
    OR coalesce(jsonb_typeof(nullif(w->'labels', 'null')), 'object') <> 'object'
  LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION 'pin % is invalid', invalid
      USING ERRCODE = 'WB003',
        HINT = 'give an array of objects, each with a key and either a pattern or labels, '
          'as in [{"key": "customer-7", "pattern": "gpu-%"}]';
  ELSIF expires_in <= interval '0' THEN
    RAISE EXCEPTION 'expires_in % is invalid', expires_in
      USING ERRCODE = 'WB003', HINT = 'give how long the pin lasts from now on, such as 30 days';
  END IF;
  PERFORM _check_key_sizes(
    'key', ARRAY(SELECT w->>'key' FROM jsonb_array_elements(wanted) w));
END $$;

-- The tokens of the pins of these keys, in their order; makes those that are missing. A new one
-- belongs to the owner of the key's own token. The caller has locked the group.
CREATE OR REPLACE FUNCTION _make_pin_tokens(g token_groups, keys text[])
RETURNS int[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  known int[] := ARRAY(
    SELECT (SELECT p.token FROM pins p WHERE p.token_group = g.name AND p.key = k.key LIMIT 1)
    FROM unnest(keys) WITH ORDINALITY k(key, place)
    ORDER BY k.place);
  made int[] := ARRAY(
    SELECT coalesce(
      k.token,
      g.next_pin - 1 + (count(*) FILTER (WHERE k.token IS NULL) OVER (ORDER BY k.place))::int)
    FROM unnest(known) WITH ORDINALITY k(token, place)
    ORDER BY k.place);
BEGIN
  INSERT INTO tokens (token_group, token, epoch, fence)
  SELECT g.name, k.token, coalesce(own.epoch, 0), _next_fence()
  FROM unnest(keys, made, known) k(key, token, known)
  LEFT JOIN tokens own
    ON own.token_group = g.name AND own.token = _token_of(k.key, g.total, g.hash)
  WHERE k.known IS NULL;
  UPDATE token_groups x
  SET next_pin = x.next_pin + (SELECT count(*) FROM unnest(known) k WHERE k IS NULL)
  WHERE x.name = g.name;
  RETURN made;
END $$;

-- Gives the jobs and held items of these keys other tokens. Both tokens of a key have the same
-- owner, so that nothing changes hands here. Leaves out rows that are locked, and returns the keys
-- that have such rows. Jobs that cannot be taken now get their lane when they can.
CREATE OR REPLACE FUNCTION _move_keys(group_name text, keys text[], sources int[], targets int[])
RETURNS text[]
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  WITH found AS MATERIALIZED (
    SELECT j.ctid AS tid, k.target
    FROM unnest(keys, sources, targets) k(key, source, target)
    CROSS JOIN (SELECT q.name FROM queues q WHERE q.token_group = group_name) q
    CROSS JOIN generate_series(0, 2) c(class)
    JOIN jobs j
      ON j.queue = q.name AND j.class = c.class AND j.lane = k.source + 1 AND j.wait IS NULL
        AND j.route_key = k.key
    FOR UPDATE OF j SKIP LOCKED)
  UPDATE jobs j
  SET lane = f.target + 1
  FROM found f
  WHERE j.ctid = f.tid;
  UPDATE item_claims i
  SET token = h.target
  FROM (
    SELECT h.ctid AS tid, k.target
    FROM unnest(keys, sources, targets) k(key, source, target)
    JOIN item_claims h
      ON h.token_group = group_name AND h.token = k.source AND h.key = k.key AND h.state = 'held'
    FOR UPDATE OF h SKIP LOCKED) h
  WHERE i.ctid = h.tid;
  RETURN ARRAY(
    SELECT k.key
    FROM unnest(keys, sources) k(key, source)
    WHERE EXISTS (
      SELECT
      FROM queues q
      CROSS JOIN generate_series(0, 2) c(class)
      JOIN jobs j
        ON j.queue = q.name AND j.class = c.class AND j.lane = k.source + 1 AND j.wait IS NULL
          AND j.route_key = k.key
      WHERE q.token_group = group_name)
    OR EXISTS (
      SELECT
      FROM item_claims h
      WHERE h.token_group = group_name
        AND h.token = k.source
        AND h.key = k.key
        AND h.state = 'held'));
END $$;

CREATE OR REPLACE FUNCTION _note_pins(g token_groups, action text, subject text, t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
  UPDATE token_groups x
  SET pins_version = x.pins_version + 1, version = x.version + 1
  WHERE x.name = g.name;
  PERFORM _audit(action, subject, NULL, NULL, t);
  PERFORM _wake_members();
END $$;

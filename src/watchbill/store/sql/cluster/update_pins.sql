-- Brings the pins of a group up to date; the leader calls it. Drops nodes of a pin whose time is
-- over. Moves jobs that were enqueued while a pin was made to the lane of the pin. Deletes a pin
-- that was cleared, once the owner of the key's token has the key again. The caller has locked the
-- group.
--
-- A producer that read the pins before a change may commit after it. So the jobs of the key are
-- moved once more when all transactions have ended that were open after the change.
--
-- Statistics know nothing of a new group. So nothing here is left to the order of a join: rows are
-- found by their keys, or looked up for each pin.
CREATE OR REPLACE FUNCTION _update_pins(g token_groups, t timestamptz)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  oldest xid8 := pg_snapshot_xmin(pg_current_snapshot());
  expired_keys text[];
  expired_ranks int[];
  ending text[];
BEGIN
  IF g.pins_version = 0 THEN RETURN; END IF;
  SELECT array_agg(p.key), array_agg(p.rank) INTO expired_keys, expired_ranks
  FROM pins p
  WHERE p.token_group = g.name
    AND p.state = 'active'
    AND p.expires_at <= t;
  IF expired_keys IS NOT NULL THEN
    PERFORM _drop_alternatives(g.name, expired_keys, expired_ranks);
    PERFORM _note_pins(g, 'expire_pins', format('pins of group %s', g.name), t);
  END IF;
  -- Pins whose key is with the owner of its own token: from now on, that token counts.
  ending := ARRAY(
    SELECT p.key
    FROM pins p
    CROSS JOIN LATERAL (
      SELECT y.epoch
      FROM tokens y
      WHERE y.token_group = p.token_group
        AND y.token = p.token
        AND y.next IS NULL
      OFFSET 0) x
    CROSS JOIN LATERAL (
      SELECT y.epoch
      FROM tokens y
      WHERE y.token_group = p.token_group
        AND y.token = _token_of(p.key, g.total, g.hash)
        AND y.next IS NULL
      OFFSET 0) own
    WHERE p.token_group = g.name
      AND p.state = 'clearing'
      AND own.epoch = x.epoch);
  IF cardinality(ending) > 0 THEN
    UPDATE pins p
    SET state = 'ending', settling = '0'
    WHERE p.token_group = g.name
      AND p.key = ANY (ending);
    UPDATE token_groups x
    SET pins_version = x.pins_version + 1, version = x.version + 1
    WHERE x.name = g.name;
    PERFORM _wake_members();
  END IF;
  PERFORM _settle_moved_keys(g, oldest);
END $$;

-- For pins that have changed (`settling` is set): moves jobs that a producer still stored in the
-- old lane to the new one. The change is settled when there is no such job, and every transaction
-- that was open at the change has ended; `oldest` is the oldest open one.
CREATE OR REPLACE FUNCTION _settle_moved_keys(g token_groups, oldest xid8)
RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  has_queues boolean := EXISTS (SELECT FROM queues q WHERE q.token_group = g.name);
  keys text[];
  sources int[];
  targets int[];
  late text[];
BEGIN
  SELECT array_agg(p.key), array_agg(p.source), array_agg(p.target) INTO keys, sources, targets
  FROM (
    SELECT DISTINCT ON (p.key)
      p.key,
      CASE p.state WHEN 'ending' THEN p.token ELSE own.token END AS source,
      CASE p.state WHEN 'ending' THEN own.token ELSE p.token END AS target
    FROM pins p
    CROSS JOIN LATERAL (SELECT _token_of(p.key, g.total, g.hash) AS token) own
    WHERE p.token_group = g.name
      AND p.settling IS NOT NULL
    ORDER BY p.key, p.rank) p;
  IF keys IS NULL THEN RETURN; END IF;
  late := _move_keys(g.name, keys, sources, targets);
  WITH settled AS (
      SELECT DISTINCT p.key, p.token, p.state
      FROM pins p
      WHERE p.token_group = g.name
        AND p.key = ANY (keys)
        AND p.key <> ALL (late)
        AND (p.settling <> '0' AND p.settling < oldest OR NOT has_queues)),
    ended_tokens AS (
      DELETE FROM tokens x
      WHERE x.token_group = g.name
        AND x.token = ANY (ARRAY(SELECT s.token FROM settled s WHERE s.state = 'ending'))),
    ended AS (
      DELETE FROM pins p
      WHERE p.token_group = g.name
        AND p.key = ANY (ARRAY(SELECT s.key FROM settled s WHERE s.state = 'ending'))),
    ready AS (
      UPDATE pins p
      SET settling = NULL
      WHERE p.token_group = g.name
        AND p.key = ANY (ARRAY(SELECT s.key FROM settled s WHERE s.state <> 'ending'))
      RETURNING p.key)
  UPDATE token_groups x
  SET pins_version = x.pins_version + 1
  WHERE x.name = g.name
    AND EXISTS (SELECT FROM ready);
  UPDATE pins p
  SET settling = pg_current_xact_id()
  WHERE p.token_group = g.name
    AND p.settling = '0';
END $$;

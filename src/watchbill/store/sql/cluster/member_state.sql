-- after: rebalance
-- Returns what a member of a group has to know: the rules of the group, the tokens that the member
-- owns, the pins, and whether the leader has work. Locks and writes nothing.
--   seen_version, seen_pins   the versions of the tokens and pins that the caller has; the result
--                             has NULL for those that are still the same
CREATE OR REPLACE FUNCTION member_state(
  epoch bigint,
  token_group text,
  seen_version bigint DEFAULT -1,
  seen_pins bigint DEFAULT -1,
  now timestamptz DEFAULT NULL
)
RETURNS TABLE (
  total int,
  hash text,
  handover_timeout interval,
  version bigint,
  pins_version bigint,
  is_member boolean, -- the node is a member, and lives
  -- The last plan has counted the node, and has given it all its tokens.
  is_assigned boolean,
  tokens int[], -- those that the node owns and keeps; NULL: as before
  moving int, -- how many tokens the node has to pass on
  pin_keys text[], -- the keys of all pins; NULL: as before
  pin_tokens int[],
  -- Why the leader has work; NULL: it has none.
  needs_leader text
)
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
DECLARE
  t timestamptz := _clock(now);
  g token_groups;
BEGIN
  SELECT * INTO g FROM token_groups x WHERE x.name = token_group;
  IF NOT FOUND THEN PERFORM _raise_no_group(token_group); END IF;
  total := g.total;
  hash := g.hash;
  handover_timeout := g.handover_timeout;
  version := g.version;
  pins_version := g.pins_version;
  is_member := epoch = ANY (_living_members(g.name));
  is_assigned := is_member
    AND coalesce(epoch = ANY (g.planned_members), false)
    AND NOT EXISTS (
      SELECT
      FROM tokens x
      WHERE x.token_group = g.name
        AND x.next = epoch);
  moving := (
    SELECT count(*)
    FROM tokens x
    WHERE x.token_group = g.name
      AND x.epoch = epoch
      AND x.next IS NOT NULL);
  IF g.version <> seen_version THEN
    tokens := ARRAY(
      SELECT x.token
      FROM tokens x
      WHERE x.token_group = g.name
        AND x.epoch = epoch
        AND x.next IS NULL);
  END IF;
  IF g.pins_version <> seen_pins THEN
    -- All alternatives of a key have the same token, and any of them may be gone.
    SELECT coalesce(array_agg(x.key), '{}'), coalesce(array_agg(x.token), '{}')
    INTO pin_keys, pin_tokens
    FROM (
      SELECT DISTINCT p.key, p.token
      FROM pins p
      WHERE p.token_group = g.name
        AND p.state <> 'ending') x;
  END IF;
  needs_leader := _find_leader_work(g, t);
  RETURN NEXT;
END $$;

-- Why rebalance() would write something; NULL: it would not. It may name work that has to wait.
CREATE OR REPLACE FUNCTION _find_leader_work(g token_groups, t timestamptz)
RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT coalesce(
    (
      SELECT _find_rebalance_reason(g, e.members)
      FROM (SELECT _eligible_members(g.name) AS members) e
      WHERE cardinality(e.members) >= g.min_nodes),
    CASE
      WHEN EXISTS (
        SELECT
        FROM tokens x
        LEFT JOIN nodes n ON n.epoch = x.epoch AND n.state IN ('active', 'draining')
        WHERE x.token_group = g.name
          AND x.next IS NOT NULL
          AND (n.epoch IS NULL OR x.asked_at <= t - g.handover_timeout)) THEN 'hand-over'
      WHEN g.pins_version = 0 THEN NULL
      WHEN EXISTS (
        SELECT
        FROM pins p
        WHERE p.token_group = g.name
          AND p.settling IS NOT NULL) THEN 'pins settle'
      WHEN EXISTS (
        SELECT
        FROM pins p
        WHERE p.token_group = g.name
          AND p.expires_at <= t) THEN 'pins expire'
      WHEN EXISTS (
        SELECT
        FROM pins p
        WHERE p.token_group = g.name
          AND p.state <> 'active') THEN 'pins end'
    END)
$$;

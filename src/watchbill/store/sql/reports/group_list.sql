-- The token groups, by name. `waits_for` says why tokens have no owner or do not move yet; NULL:
-- nothing is wrong.
CREATE OR REPLACE FUNCTION group_list(name text DEFAULT NULL, now timestamptz DEFAULT NULL)
RETURNS TABLE (
  name text,
  total int,
  hash text,
  min_nodes int,
  handover_timeout interval,
  version bigint,
  leader text,
  term bigint,
  members text[], -- that get tokens
  others text[], -- members that drain, leave or do not serve the group's queues
  queues text[],
  owned int, -- tokens with a living owner
  moving int, -- that wait for their hand-over
  largest int, -- number of tokens of one member
  smallest int,
  pins int,
  pins_without_match int,
  waits_for text
)
LANGUAGE sql STABLE AS $$
  SELECT
    g.name, g.total, g.hash, g.min_nodes, g.handover_timeout, g.version, l.leader, l.term,
    _read_node_names(m.eligible),
    _read_node_names(ARRAY(SELECT unnest(m.living) EXCEPT SELECT unnest(m.eligible))),
    ARRAY(SELECT q.name FROM queues q WHERE q.token_group = g.name ORDER BY q.name),
    o.owned, o.moving, s.largest, s.smallest, p.pins, p.pins_without_match,
    CASE
      WHEN cardinality(m.eligible) = 0 AND m.has_active THEN format(
        'no member serves all its queues (%s)', (
          SELECT string_agg(q.name, ', ' ORDER BY q.name)
          FROM queues q
          WHERE q.token_group = g.name))
      WHEN cardinality(m.eligible) < g.min_nodes THEN format(
        '%s of at least %s nodes have joined%s', cardinality(m.eligible), g.min_nodes,
        CASE
          WHEN cardinality(m.living) > cardinality(m.eligible)
            THEN ' and can own tokens; the others drain, leave or do not serve its queues'
        END)
      WHEN l.leader IS NULL THEN 'it has no leader'
      WHEN o.moving > 0 THEN format('%s tokens are being handed over', o.moving)
      WHEN o.owned < g.total THEN format('%s tokens have no owner', g.total - o.owned)
      WHEN p.pins_without_match > 0 THEN format('%s pins match no node', p.pins_without_match)
    END
  FROM token_groups g
  CROSS JOIN LATERAL (
    SELECT
      _eligible_members(g.name) AS eligible,
      _living_members(g.name) AS living,
      -- Whether a member neither drains nor leaves: if it gets no tokens, that is for its queues.
      EXISTS (
        SELECT
        FROM members x
        JOIN nodes n ON n.epoch = x.epoch AND n.state = 'active'
        WHERE x.token_group = g.name
          AND NOT x.is_leaving) AS has_active) m
  LEFT JOIN LATERAL (
    SELECT n.name AS leader, k.fence AS term
    FROM locks k
    JOIN nodes n ON n.epoch = k.epoch AND n.state IN ('active', 'draining')
    WHERE k.name = 'leader/' || g.name
      AND k.holder IS NOT NULL
      AND _lock_end(k.epoch, k.expires_at) > _clock(group_list.now)) l ON true
  CROSS JOIN LATERAL (
    SELECT
      count(*) FILTER (WHERE x.epoch = ANY (m.living) AND x.token < g.total)::int AS owned,
      count(*) FILTER (WHERE x.next IS NOT NULL)::int AS moving
    FROM tokens x
    WHERE x.token_group = g.name) o
  CROSS JOIN LATERAL (
    SELECT max(c.count)::int AS largest, min(c.count)::int AS smallest
    FROM (
      SELECT count(x.token) AS count
      FROM unnest(m.eligible) e(epoch)
      LEFT JOIN tokens x
        ON x.token_group = g.name AND x.epoch = e.epoch AND x.token < g.total
      GROUP BY e.epoch) c) s
  CROSS JOIN LATERAL (
    SELECT
      count(*)::int AS pins,
      count(*) FILTER (WHERE NOT y.has_match)::int AS pins_without_match
    FROM (
      SELECT bool_or(EXISTS (
        SELECT
        FROM nodes n
        WHERE n.epoch = ANY (m.eligible)
          AND (n.name LIKE x.pattern OR _has_labels(n.name, n.labels, x.labels)))) AS has_match
      FROM pins x
      WHERE x.token_group = g.name
        AND x.state = 'active'
      GROUP BY x.key) y) p
  WHERE group_list.name IS NULL
    OR g.name = group_list.name
  ORDER BY g.name
$$;

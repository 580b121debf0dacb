-- Who owns how many tokens of a group, and how many are on their way; NULL: no living owner.
CREATE OR REPLACE FUNCTION token_owners(token_group text)
RETURNS TABLE (
  node text,
  epoch bigint,
  tokens int,
  pins int,
  leaving int, -- of these, on their way to another node
  arriving int
)
LANGUAGE sql STABLE AS $$
  SELECT
    n.name,
    n.epoch,
    count(*) FILTER (WHERE x.owner AND x.token < g.total)::int,
    count(*) FILTER (WHERE x.owner AND x.token >= g.total)::int,
    count(*) FILTER (WHERE x.owner AND x.moves)::int,
    count(*) FILTER (WHERE NOT x.owner)::int
  FROM token_groups g
  JOIN (
    SELECT y.token, y.epoch, true AS owner, y.next IS NOT NULL AS moves
    FROM tokens y
    WHERE y.token_group = token_owners.token_group
    UNION ALL
    SELECT y.token, y.next, false, true
    FROM tokens y
    WHERE y.token_group = token_owners.token_group
      AND y.next <> 0
    UNION ALL
    SELECT NULL, m.epoch, NULL, false
    FROM members m
    WHERE m.token_group = token_owners.token_group) x ON true
  LEFT JOIN nodes n ON n.epoch = x.epoch AND n.state IN ('active', 'draining')
  WHERE g.name = token_owners.token_group
    AND (x.token IS NOT NULL OR n.epoch IS NOT NULL)
  GROUP BY n.name, n.epoch
  ORDER BY n.name
$$;

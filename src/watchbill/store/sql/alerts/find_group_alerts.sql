-- after: alert_finding
-- Finds token groups whose tokens have no owner, that have no leader, whose pins match no node, or
-- that are rebalanced again and again. Reads one index entry per owner, not each token.
CREATE OR REPLACE FUNCTION _find_group_alerts(t timestamptz)
RETURNS SETOF alert_finding
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN QUERY
    SELECT
      'tokens_unowned', g.name, NULL::text, NULL::float8, NULL::float8,
      format('tokens of group %s have no living owner', g.name), '{}'::jsonb
    FROM token_groups g
    WHERE EXISTS (
      SELECT
      FROM _list_token_owners(g.name) o(epoch)
      WHERE NOT EXISTS (
        SELECT
        FROM nodes n
        JOIN beats b USING (epoch)
        WHERE n.epoch = o.epoch
          AND n.state IN ('active', 'draining')
          AND b.at + n.lease > t));
  RETURN QUERY
    SELECT
      'no_leader', c.group_name, NULL::text, NULL::float8, NULL::float8,
      format('group %s has %s candidates, and none leads it', c.group_name, count(*)), '{}'::jsonb
    FROM candidates c
    JOIN nodes n ON n.epoch = c.epoch AND n.state = 'active'
    WHERE NOT EXISTS (
      SELECT
      FROM locks k
      WHERE k.name = 'leader/' || c.group_name
        AND k.holder IS NOT NULL
        AND _lock_end(k.epoch, k.expires_at) > t)
    GROUP BY c.group_name;
  RETURN QUERY
    SELECT
      'pin_unmatched', p.token_group, NULL::text, NULL::float8, NULL::float8,
      format(
        '%s pins of group %s match no node, the first of key %s', count(*), p.token_group,
        min(p.key)),
      '{}'::jsonb
    FROM (
      SELECT
        x.token_group, x.key,
        bool_or(EXISTS (
          SELECT
          FROM members m
          JOIN nodes n ON n.epoch = m.epoch AND n.state = 'active'
          WHERE m.token_group = x.token_group
            AND NOT m.is_leaving
            AND (n.name LIKE x.pattern OR _has_labels(n.name, n.labels, x.labels)))) AS is_matched
      FROM (SELECT * FROM pins y WHERE y.state = 'active' LIMIT 1000) x
      GROUP BY 1, 2) p
    WHERE NOT p.is_matched
    GROUP BY p.token_group;
  RETURN QUERY
    SELECT
      'rebalancing', g.name, NULL::text, r.plans::float8, NULL::float8,
      format('%s plans have moved tokens of group %s in the last hour', r.plans, g.name),
      '{}'::jsonb
    FROM token_groups g
    CROSS JOIN LATERAL (
      SELECT count(*) AS plans
      FROM rebalances x
      WHERE x.token_group = g.name
        AND x.at > t - interval '1 hour') r
    WHERE r.plans > 0;
END $$;

-- Lists the different owners of the tokens of a group. Reads one index entry for each.
CREATE OR REPLACE FUNCTION _list_token_owners(token_group text)
RETURNS SETOF bigint
LANGUAGE plpgsql STABLE AS $$
#variable_conflict use_variable
BEGIN
  RETURN QUERY
    WITH RECURSIVE owners AS (
      (
        SELECT x.epoch
        FROM tokens x
        WHERE x.token_group = token_group
          AND x.next IS NULL
        ORDER BY x.epoch
        LIMIT 1)
      UNION ALL
      SELECT n.epoch
      FROM owners o
      CROSS JOIN LATERAL (
        SELECT x.epoch
        FROM tokens x
        WHERE x.token_group = token_group
          AND x.next IS NULL
          AND x.epoch > o.epoch
        ORDER BY x.epoch
        LIMIT 1) n)
    SELECT o.epoch FROM owners o;
END $$;

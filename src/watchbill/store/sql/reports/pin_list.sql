-- The pins of a group that have not expired, by key. owner: the node that has the key, or NULL.
-- has_match: whether an alternative matches a node that gets tokens; if not, the key waits.
CREATE OR REPLACE FUNCTION pin_list(
  token_group text,
  key text DEFAULT NULL,
  created_by text DEFAULT NULL,
  max int DEFAULT 10000,
  after text DEFAULT NULL,
  now timestamptz DEFAULT NULL
)
RETURNS TABLE (
  key text,
  token int,
  patterns text[], -- labels as JSON
  owner text,
  has_match boolean,
  reason text,
  created_by text,
  created_at timestamptz,
  expires_at timestamptz
)
LANGUAGE sql STABLE AS $$
  SELECT
    p.key, p.token, p.patterns, n.name,
    EXISTS (
      SELECT
      FROM pins a
      JOIN nodes m ON m.name LIKE a.pattern OR _has_labels(m.name, m.labels, a.labels)
      WHERE a.token_group = pin_list.token_group
        AND a.key = p.key
        AND m.epoch = ANY (_eligible_members(pin_list.token_group))),
    p.reason, p.created_by, p.created_at, p.expires_at
  FROM (
    SELECT
      x.key, min(x.token) AS token,
      array_agg(coalesce(x.pattern, x.labels::text) ORDER BY x.rank) AS patterns,
      (array_agg(x.reason ORDER BY x.rank))[1] AS reason,
      (array_agg(x.created_by ORDER BY x.rank))[1] AS created_by,
      min(x.created_at) AS created_at,
      CASE WHEN bool_and(x.expires_at IS NOT NULL) THEN max(x.expires_at) END AS expires_at
    FROM pins x
    WHERE x.token_group = pin_list.token_group
      AND x.state = 'active'
      AND (x.expires_at IS NULL OR x.expires_at > _clock(pin_list.now))
      AND (pin_list.key IS NULL OR x.key = pin_list.key)
      AND (pin_list.created_by IS NULL OR x.created_by = pin_list.created_by)
      AND (pin_list.after IS NULL OR x.key > pin_list.after)
    GROUP BY x.key
    ORDER BY x.key
    LIMIT max) p
  LEFT JOIN tokens o ON o.token_group = pin_list.token_group AND o.token = p.token
  LEFT JOIN nodes n ON n.epoch = o.epoch AND n.state IN ('active', 'draining')
  ORDER BY p.key
$$;

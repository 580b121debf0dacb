-- The rebalances of a group, the latest first.
CREATE OR REPLACE FUNCTION rebalance_list(token_group text, max int DEFAULT 100)
RETURNS SETOF rebalances
LANGUAGE sql STABLE AS $$
  SELECT r.*
  FROM rebalances r
  WHERE r.token_group = rebalance_list.token_group
  ORDER BY r.at DESC, r.id DESC
  LIMIT max
$$;

-- The tokens of a group as runs of neighbours with one owner; NULL: no living owner.
CREATE OR REPLACE FUNCTION token_ranges(token_group text)
RETURNS TABLE (first int, last int, owner text, next text)
LANGUAGE sql STABLE AS $$
  SELECT min(y.token), max(y.token), n.name, m.name
  FROM (
    SELECT
      x.token, x.epoch, x.next,
      x.token - row_number() OVER (PARTITION BY x.epoch, x.next ORDER BY x.token) AS run
    FROM tokens x
    JOIN token_groups g ON g.name = x.token_group AND x.token < g.total
    WHERE x.token_group = token_ranges.token_group) y
  LEFT JOIN nodes n ON n.epoch = y.epoch AND n.state IN ('active', 'draining')
  LEFT JOIN nodes m ON m.epoch = y.next
  GROUP BY y.run, y.epoch, y.next, n.name, m.name
  ORDER BY 1
$$;

-- The jobs that hold keys of a limit, the longest first: the node that runs each, and since when. A
-- job without a node is dead, and keeps an ordered key, or waits for its next attempt. Jobs that
-- row security hides are left out: a key contains what their payload says.
CREATE OR REPLACE FUNCTION limit_holders(name text, max int DEFAULT 50)
RETURNS TABLE (
  key text,
  job_id uuid,
  type text,
  node text,
  since timestamptz
)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT h.key, h.job_id, j.type, n.name, c.at
  FROM _limit_key_range(limit_holders.name) r
  JOIN holds h ON h.key = r.exact OR (h.key >= r.low AND h.key < r.high)
  LEFT JOIN jobs j ON j.id = h.job_id
  LEFT JOIN claims c ON c.fence = j.fence
  LEFT JOIN nodes n ON n.epoch = c.epoch
  WHERE (
      j.id IS NOT NULL
      OR _acts_for_all_tenants()
      OR _job_seq(h.job_id) IS NOT NULL)
    AND (NOT starts_with(h.key, 'tenant:') OR _sees_tenant(substr(h.key, 8)))
  ORDER BY c.at NULLS FIRST, h.key, h.job_id
  LIMIT limit_holders.max
$$;

-- after: limit_list
-- The jobs that hold keys of a limit, the longest first: its state, the node that runs it, and
-- since when. A job that does not run keeps an ordered key: it is dead, or waits for its next
-- attempt. Jobs that row security hides are left out: a key contains what their payload says.
CREATE OR REPLACE FUNCTION limit_holders(name text, max int DEFAULT 50)
RETURNS TABLE (
  key text,
  job_id uuid,
  type text,
  state text,
  node text,
  since timestamptz
)
LANGUAGE sql STABLE AS $$
  SELECT
    h.key,
    h.job_id,
    j.type,
    CASE WHEN j.id IS NULL THEN 'dead' ELSE _job_state(j.fence, j.wait, j.failed, j.wait_key) END,
    n.name,
    c.at
  FROM _limit_key_range(limit_holders.name) r
  JOIN holds h ON h.key = r.exact OR (h.key >= r.low AND h.key < r.high)
  LEFT JOIN jobs j ON j.id = h.job_id
  LEFT JOIN claims c ON c.fence = j.fence
  LEFT JOIN nodes n ON n.epoch = c.epoch
  WHERE (j.id IS NOT NULL OR _acts_for_all_tenants() OR _job_seq(h.job_id) IS NOT NULL)
    AND (NOT _is_tenant_key(h.key) OR _sees_tenant(_key_tenant(h.key)))
  ORDER BY c.at NULLS FIRST, h.key, h.job_id
  LIMIT limit_holders.max
$$;

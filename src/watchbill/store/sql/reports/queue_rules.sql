-- Lists the queues that have a limit or are fair: how many of their jobs may run at once, how many
-- do run, by which argument their jobs take turns, and the shares whose weight is not 1. A share
-- may be named after a tenant, so with row security only a caller that sees all tenants sees the
-- shares.
CREATE OR REPLACE FUNCTION queue_rules()
RETURNS TABLE (
  name text,
  max int,
  running bigint,
  fair_by text,
  shares jsonb,
  token_group text,
  owner text
)
LANGUAGE sql STABLE AS $$
  SELECT
    q.name, q.max,
    CASE
      WHEN q.max IS NOT NULL THEN (SELECT count(*) FROM holds h WHERE h.key = _queue_key(q.name))
    END,
    q.fair_by,
    (
      SELECT jsonb_object_agg(s.share, s.weight)
      FROM shares s
      WHERE s.queue = q.name
        AND _acts_for_all_tenants()),
    q.token_group, q.owner
  FROM queues q
  ORDER BY q.name
$$;

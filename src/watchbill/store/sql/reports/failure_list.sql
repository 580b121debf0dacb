-- Lists groups of failures, the last one first: how often attempts have failed in the same way, how
-- many jobs that has left dead, and the message of the last attempt. `failure` is the number that
-- failure_key() computes.
CREATE OR REPLACE FUNCTION failure_list(
  since timestamptz DEFAULT NULL,
  type text DEFAULT NULL,
  tenant text DEFAULT NULL,
  max int DEFAULT 100
)
RETURNS TABLE (
  failure bigint,
  tenant text,
  type text,
  exception text,
  message text,
  example uuid,
  first timestamptz,
  last timestamptz,
  attempts bigint,
  dead bigint
)
LANGUAGE sql STABLE AS $$
  SELECT
    g.failure, g.tenant, g.type, g.exception, g.message, g.example, g.first, g.last, g.attempts,
    g.dead
  FROM failure_groups g
  WHERE (failure_list.since IS NULL OR g.last >= failure_list.since)
    AND (failure_list.type IS NULL OR g.type = failure_list.type)
    AND (failure_list.tenant IS NULL OR g.tenant = failure_list.tenant)
  ORDER BY g.last DESC
  LIMIT failure_list.max
$$;

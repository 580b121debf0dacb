-- Claims for a worker that asks over HTTP, which has no loop that asks for jobs in quarantine now
-- and then: takes such a job first if the worker holds nothing, and nothing beside it. Otherwise as
-- claim().
CREATE OR REPLACE FUNCTION _claim_for_api(
  node_epoch bigint,
  queues text[],
  max int,
  free int DEFAULT NULL
)
RETURNS TABLE (
  id uuid,
  fence bigint,
  type text,
  payload jsonb,
  queue text,
  tenant text,
  priority smallint,
  run_at timestamptz,
  run int,
  attempt smallint,
  max_attempts smallint,
  version int,
  timeout real,
  meta jsonb
)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  held_classes smallint[] := ARRAY(
    SELECT j.class
    FROM claims c
    CROSS JOIN LATERAL unnest(c.job_ids) h(id)
    JOIN jobs j ON j.id = h.id AND j.fence = c.fence
    WHERE c.epoch = node_epoch);
BEGIN
  IF 2 = ANY (held_classes) THEN RETURN; END IF;
  IF held_classes = '{}' AND max > 0 THEN
    RETURN QUERY
      SELECT
        c.id, c.fence, c.type, c.payload, c.queue, c.tenant, c.priority, c.run_at, c.run,
        c.attempt, c.max_attempts, c.version, c.timeout, c.meta
      FROM claim(node_epoch, queues, 1, 1, alone => true) c;
    IF FOUND THEN RETURN; END IF;
  END IF;
  RETURN QUERY
    SELECT
      c.id, c.fence, c.type, c.payload, c.queue, c.tenant, c.priority, c.run_at, c.run,
      c.attempt, c.max_attempts, c.version, c.timeout, c.meta
    FROM claim(node_epoch, queues, max, free) c;
END $$;

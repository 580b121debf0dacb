-- Claims for a worker of a facade, which is a session of psql or a program of its own and so has no
-- loop that asks for jobs in quarantine now and then: takes such a job first if the worker holds
-- nothing, and nothing beside it. Otherwise as claim(), with the columns that facades need.
CREATE OR REPLACE FUNCTION _claim_for_session(
  node_epoch bigint,
  queue text,
  max int,
  without text[] DEFAULT NULL,
  for_tenant text DEFAULT NULL
)
RETURNS TABLE (
  id uuid,
  fence bigint,
  type text,
  payload jsonb,
  priority smallint,
  run_at timestamptz,
  attempt smallint,
  version int,
  meta jsonb
)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  held_classes smallint[] := ARRAY(
    SELECT j.class
    FROM claims c
    CROSS JOIN LATERAL unnest(c.job_ids) h(id)
    JOIN jobs j ON j.id = h.id AND j.fence = c.fence
    WHERE c.epoch = node_epoch);
BEGIN
  IF 2 = ANY (held_classes) THEN RETURN; END IF;
  PERFORM promote();
  IF held_classes = '{}' AND max > 0 THEN
    RETURN QUERY
      SELECT
        c.id, c.fence, c.type, c.payload, c.priority, c.run_at, c.attempt, c.version, c.meta
      FROM claim(node_epoch, ARRAY[queue], 1, 1, alone => true, for_tenant => for_tenant) c;
    IF FOUND THEN RETURN; END IF;
  END IF;
  RETURN QUERY
    SELECT c.id, c.fence, c.type, c.payload, c.priority, c.run_at, c.attempt, c.version, c.meta
    FROM claim(
      node_epoch, ARRAY[queue], max, max, without => without, for_tenant => for_tenant) c;
END $$;

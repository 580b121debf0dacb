-- Renews the lease, five minutes, of a worker of a facade, counts the jobs that it has processed,
-- and returns its epoch. Registers the worker if it is new or was lost. The name of its node ends
-- with @ and the facade, so that other nodes can have the id of the worker as their name. Locks
-- what heartbeat() or register() locks.
CREATE OR REPLACE FUNCTION _renew_facade_worker(
  facade text, worker_id text, processed int, types jsonb DEFAULT '{}'
)
RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
  node_name text := nullif(worker_id, '') || '@' || facade;
  living record;
BEGIN
  SELECT n.epoch, b.processed
  INTO living
  FROM nodes n
  JOIN beats b ON b.epoch = n.epoch
  WHERE n.name = node_name
    AND n.state IN ('active', 'draining')
    AND n.app = facade;
  IF NOT FOUND THEN
    RETURN register(
      node_name, interval '5 minutes', facade, types,
      host => coalesce(host(inet_client_addr()), 'local'), queues => ARRAY[facade]);
  END IF;
  PERFORM heartbeat(living.epoch, processed => living.processed + processed);
  RETURN living.epoch;
END $$;

-- Sets what every job of a connector has, from every producer: `receiver`, by which its queue is
-- fair, and the key of the limit of its endpoint, or of the host of a free address, or of the name
-- of an endpoint that does not exist yet. Jobs of an ordered endpoint run in order, so without a
-- priority. A delivery runs in the queue `webhooks`, and has the delays of Standard Webhooks if it
-- has no others. Other jobs stay as they are. Makes the queue and the limit of free addresses, if
-- they do not exist yet. While an open transaction makes them, jobs of others go without: that of
-- one tenant must not stop the others.
CREATE OR REPLACE FUNCTION _prepare_connector_job(n new_job)
RETURNS new_job
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  endpoint text;
  receiver text;
  key text;
BEGIN
  IF n.type NOT IN ('connector.http.request', 'connector.webhook.deliver')
    OR coalesce(jsonb_typeof(n.payload), '') <> 'object' THEN
    RETURN n;
  END IF;
  endpoint := n.payload->>'endpoint';
  receiver := left(coalesce(endpoint, _url_host(n.payload->>'url'), ''), 250);
  n.payload := n.payload || jsonb_build_object('receiver', receiver);
  IF endpoint IS NOT NULL THEN
    key := _endpoint_limit(n.tenant, endpoint);
    IF NOT EXISTS (SELECT FROM limits l WHERE l.name = key) THEN key := NULL; END IF;
    IF EXISTS (
      SELECT
      FROM connector_endpoints e
      WHERE e.tenant = n.tenant
        AND e.name = endpoint
        AND e.ordered) THEN
      n.ordered_by := '{tenant}/{receiver}';
      n.priority := 0;
    END IF;
  END IF;
  IF key IS NULL THEN
    -- A free address, or an endpoint that does not exist yet.
    PERFORM _make_receiver_limit()
    WHERE NOT EXISTS (SELECT FROM limits l WHERE l.name = 'connector/receiver');
    key := (
      SELECT l.name || ':' || _percent_encode(n.tenant) || '/' || _percent_encode(receiver)
      FROM limits l
      WHERE l.name = 'connector/receiver');
  END IF;
  n.limit_keys := ARRAY(
    SELECT k
    FROM unnest(n.limit_keys) k
    WHERE NOT starts_with(k, 'endpoint/')
      AND NOT starts_with(k, 'connector/')
    UNION ALL
    SELECT key
    WHERE key IS NOT NULL);
  IF n.type = 'connector.webhook.deliver' THEN
    PERFORM _make_webhook_queue()
    WHERE NOT EXISTS (SELECT FROM queues q WHERE q.name = 'webhooks');
    n.queue := 'webhooks';
    n.retry := coalesce(
      n.retry,
      '{"kind": "list", "base": 5, "factor": 1, "cap": 86400, "jitter": 0.2,
        "delays": [5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400]}');
  END IF;
  RETURN n;
END $$;

-- The host in a text that should be an address; NULL if there is none. It only decides whose turn
-- it is: the worker checks the address.
CREATE OR REPLACE FUNCTION _url_host(url text)
RETURNS text
LANGUAGE sql IMMUTABLE
RETURN lower(substring(url FROM '^[A-Za-z]+://(?:[^/?#]*@)?(\[[^]]*\]|[^/?#:]*)'));

-- Makes the queue of deliveries, fair by receiver, unless it has jobs that are not in lanes. Does
-- not wait for another transaction that does the same.
CREATE OR REPLACE FUNCTION _make_webhook_queue()
RETURNS void
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '20ms'
AS $$
BEGIN
  IF EXISTS (SELECT FROM jobs j WHERE j.queue = 'webhooks') THEN RETURN; END IF;
  INSERT INTO queues (name, lanes, fair_by)
  VALUES ('webhooks', 'share', '{tenant}/{receiver}')
  ON CONFLICT DO NOTHING;
EXCEPTION WHEN lock_not_available THEN
  NULL;
END $$;

-- Makes the limit for the hosts of free addresses: five requests at once for a tenant and host.
-- Does not wait for another transaction that does the same.
CREATE OR REPLACE FUNCTION _make_receiver_limit()
RETURNS void
LANGUAGE plpgsql VOLATILE
SET lock_timeout = '20ms'
AS $$
BEGIN
  INSERT INTO limits (name, max) VALUES ('connector/receiver', 5) ON CONFLICT DO NOTHING;
EXCEPTION WHEN lock_not_available THEN
  NULL;
END $$;

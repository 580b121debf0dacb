-- A site of jobsync is a token group of Watchbill. With the setting watchbill.site, all views show
-- this site only.

-- Shows the nodes of all sites: nodes that are alive, and nodes that were lost and have not
-- returned. The last heartbeat of a lost node is not stored; it was at least one lease before the
-- loss was found.
CREATE OR REPLACE VIEW @facade@.@prefix@node
WITH (security_invoker = true) AS
SELECT
  n.name,
  n.started_at AS created_on,
  coalesce(b.at, n.ended_at - n.lease) AS last_heartbeat,
  s.site
FROM nodes n
LEFT JOIN beats b ON b.epoch = n.epoch
CROSS JOIN LATERAL (
  SELECT coalesce(
    (
      SELECT min(m.token_group)
      FROM members m
      WHERE m.epoch = n.epoch
        AND m.token_group
          = coalesce(nullif(current_setting('watchbill.site', true), ''), m.token_group)),
    n.labels->>'site') AS site) s
WHERE s.site = coalesce(nullif(current_setting('watchbill.site', true), ''), s.site)
  AND (
    n.state IN ('active', 'draining')
    OR n.state = 'lost'
      AND NOT EXISTS (
        SELECT
        FROM nodes newer
        WHERE newer.name = n.name
          AND newer.epoch > n.epoch));

-- Deletes a lost node. A node whose lease has run out is declared lost first. What the node has
-- claimed stays, so that it can be recovered. Locks the rows of the node.
CREATE OR REPLACE FUNCTION @facade@.@prefix@_forget_node()
RETURNS trigger
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM expire_node(n.epoch, b.n)
  FROM nodes n
  JOIN beats b ON b.epoch = n.epoch
  WHERE n.name = OLD.name
    AND n.state IN ('active', 'draining')
    AND b.at + n.lease < _clock();
  IF EXISTS (SELECT FROM nodes n WHERE n.name = OLD.name AND n.state IN ('active', 'draining')) THEN
    RAISE EXCEPTION 'node % is alive: only lost nodes can be deleted', quote_literal(OLD.name)
      USING ERRCODE = 'WB008', HINT = 'stop it; a node that leaves deletes itself';
  END IF;
  PERFORM _delete_ended_nodes(ARRAY(SELECT n.epoch FROM nodes n WHERE n.name = OLD.name));
  RETURN OLD;
END $$;

CREATE OR REPLACE TRIGGER forget_node
INSTEAD OF DELETE ON @facade@.@prefix@node
FOR EACH ROW EXECUTE FUNCTION @facade@.@prefix@_forget_node();

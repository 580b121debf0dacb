-- Shows which node owns which token; `node` is NULL if no node does. Tokens from the total of the
-- site on belong to pins.
CREATE OR REPLACE VIEW @facade@.@prefix@token
WITH (security_invoker = true) AS
SELECT x.token AS token_id, n.name AS node, g.version, x.token_group AS site
FROM tokens x
JOIN token_groups g ON g.name = x.token_group
LEFT JOIN nodes n ON n.epoch = x.epoch
WHERE x.token_group = coalesce(nullif(current_setting('watchbill.site', true), ''), x.token_group);

-- Ignores a DELETE from the view. The leader gives the tokens of nodes that are gone to other nodes
-- anyway.
CREATE OR REPLACE FUNCTION @facade@.@prefix@_keep_token()
RETURNS trigger
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER keep_token
INSTEAD OF DELETE ON @facade@.@prefix@token
FOR EACH ROW EXECUTE FUNCTION @facade@.@prefix@_keep_token();

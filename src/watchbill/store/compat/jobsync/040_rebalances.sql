-- Shows the rebalances that moved tokens.
CREATE OR REPLACE VIEW @facade@.@prefix@rebalance
WITH (security_invoker = true) AS
SELECT
  r.id,
  r.at AS triggered_at,
  r.reason AS trigger_reason,
  r.leader AS leader_node,
  cardinality(r.nodes_before) AS nodes_before,
  cardinality(r.nodes_after) AS nodes_after,
  r.moved AS tokens_moved,
  round(1000 * extract(epoch FROM r.duration))::int AS duration_ms,
  r.token_group AS site
FROM rebalances r
WHERE r.token_group = coalesce(nullif(current_setting('watchbill.site', true), ''), r.token_group);

CREATE OR REPLACE FUNCTION @facade@.@prefix@_forget_rebalance()
RETURNS trigger
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM _forget_rebalances(ARRAY[OLD.id]);
  RETURN OLD;
END $$;

CREATE OR REPLACE TRIGGER forget_rebalance
INSTEAD OF DELETE ON @facade@.@prefix@rebalance
FOR EACH ROW EXECUTE FUNCTION @facade@.@prefix@_forget_rebalance();

-- Refuses changes through the view. Without this trigger PostgreSQL would apply them to Watchbill's
-- own tables, because a simple view is updatable.
CREATE OR REPLACE FUNCTION @facade@.@prefix@_refuse_change()
RETURNS trigger
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  RAISE EXCEPTION '% cannot be changed', TG_TABLE_NAME
    USING ERRCODE = 'WB003', HINT = TG_ARGV[0];
END $$;

CREATE OR REPLACE TRIGGER refuse_change
INSTEAD OF INSERT OR UPDATE ON @facade@.@prefix@rebalance
FOR EACH ROW EXECUTE FUNCTION @facade@.@prefix@_refuse_change(
  'old rows can be deleted');

-- Shows the tasks that nodes have claimed and not completed, and all tasks that were claimed today.
-- A claim stays when its node is gone.
CREATE OR REPLACE VIEW @facade@.@prefix@claim
WITH (security_invoker = true) AS
SELECT i.node, i.key AS item, i.claimed_at AS created_on, i.token_group AS site
FROM item_claims i
WHERE i.token_group = coalesce(nullif(current_setting('watchbill.site', true), ''), i.token_group)
  AND (i.state <> 'finished' OR i.claimed_at::date = CURRENT_DATE);

-- Shows the tasks that are complete. The scope of an item is the date of the job; an item with a
-- scope that is not a date has the date on which it was finished. A day that its month does not
-- have, such as February 30, is counted on from the first of the month, so that no scope makes a
-- query fail.
CREATE OR REPLACE VIEW @facade@.@prefix@audit
WITH (security_invoker = true) AS
SELECT
  CASE
    WHEN i.scope ~ '^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$' AND i.scope > '0001'
      THEN (left(i.scope, 8) || '01')::date + right(i.scope, 2)::int - 1
    ELSE i.ended_at::date
  END AS date,
  i.node, i.key AS item, i.ended_at AS created_on, i.token_group AS site
FROM item_claims i
WHERE i.token_group = coalesce(nullif(current_setting('watchbill.site', true), ''), i.token_group)
  AND i.state = 'finished';

-- Deletes a claim, unless a living node holds it: another node could claim the same task while the
-- first one works on it.
CREATE OR REPLACE FUNCTION @facade@.@prefix@_forget_claim()
RETURNS trigger
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  IF EXISTS (
    SELECT
    FROM item_claims i
    JOIN nodes n ON n.epoch = i.epoch AND n.state IN ('active', 'draining')
    WHERE i.token_group = OLD.site
      AND i.key = OLD.item
      AND i.claimed_at = OLD.created_on
      AND i.state = 'held')
  THEN
    RAISE EXCEPTION 'task % is held by node %, which is alive', OLD.item, OLD.node
      USING ERRCODE = 'WB003', HINT = 'a claim ends with the audit, or with its node';
  END IF;
  DELETE FROM item_claims i
  WHERE i.token_group = OLD.site
    AND i.key = OLD.item
    AND i.claimed_at = OLD.created_on;
  RETURN OLD;
END $$;

CREATE OR REPLACE FUNCTION @facade@.@prefix@_forget_audit()
RETURNS trigger
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  DELETE FROM item_claims i
  WHERE i.token_group = OLD.site
    AND i.key = OLD.item
    AND i.ended_at = OLD.created_on
    AND i.state = 'finished';
  RETURN OLD;
END $$;

CREATE OR REPLACE TRIGGER refuse_change
INSTEAD OF INSERT OR UPDATE ON @facade@.@prefix@claim
FOR EACH ROW EXECUTE FUNCTION @facade@.@prefix@_refuse_change(
  'add_task claims a task');
CREATE OR REPLACE TRIGGER forget_claim
INSTEAD OF DELETE ON @facade@.@prefix@claim
FOR EACH ROW EXECUTE FUNCTION @facade@.@prefix@_forget_claim();
CREATE OR REPLACE TRIGGER refuse_change
INSTEAD OF INSERT OR UPDATE ON @facade@.@prefix@audit
FOR EACH ROW EXECUTE FUNCTION @facade@.@prefix@_refuse_change(
  'write_audit records what is complete');
CREATE OR REPLACE TRIGGER forget_audit
INSTEAD OF DELETE ON @facade@.@prefix@audit
FOR EACH ROW EXECUTE FUNCTION @facade@.@prefix@_forget_audit();

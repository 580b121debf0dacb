-- Tasks that nodes have claimed: those that are not complete, and all that were claimed today. A
-- claim survives its node.
CREATE OR REPLACE VIEW @facade@.@prefix@claim
WITH (security_invoker = true) AS
SELECT i.node, i.key AS item, i.claimed_at AS created_on, i.token_group AS site
FROM item_claims i
WHERE i.token_group = coalesce(nullif(current_setting('watchbill.site', true), ''), i.token_group)
  AND (i.state <> 'finished' OR i.claimed_at::date = CURRENT_DATE);

-- Tasks that are complete. The scope of an item is the date of the job; an item with another scope
-- has the date on which it was finished. A day that its month does not have counts from the first
-- of the month on, so that no scope makes a query fail.
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

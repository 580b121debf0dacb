-- These statements are about token groups: members, programs and operators send them.

-- name: declare_group
SELECT {schema}.declare_group(
  %s::text, %s::int, %s::text, %s::int, make_interval(secs => %s::float8))

-- name: ensure_group
SELECT {schema}.declare_group(%s::text)
WHERE NOT EXISTS (SELECT FROM {schema}.token_groups g WHERE g.name = %s::text)

-- name: remove_group
SELECT {schema}.remove_group(%s::text)

-- name: route_queue
SELECT {schema}.route_queue(%s::text, %s::text)

-- name: join_group
SELECT {schema}.join_group(%s::bigint, %s::text)

-- name: leave_group
SELECT {schema}.leave_group(%s::bigint, %s::text)

-- name: member_state
SELECT
  total, hash, handover_timeout, version, pins_version, is_member, is_assigned, tokens, moving,
  pin_keys, pin_tokens, needs_leader
FROM {schema}.member_state(%s::bigint, %s::text, %s::bigint, %s::bigint)

-- name: pass_tokens
SELECT {schema}.pass_tokens(%s::bigint, %s::text, %s::bigint)

-- name: rebalance
SELECT {schema}.rebalance(%s::text, %s::bigint, %s::bigint)

-- name: request_rebalance
SELECT {schema}.request_rebalance(%s::text)

-- name: claim_items
SELECT key, fence, refused, node
FROM {schema}.claim_items(%s::bigint, %s::text, %s::text[], %s::text, %s::boolean)

-- name: check_item
-- Runs on the user's own connection, through any driver.
SELECT {schema}.check_item(%s::text, %s::text, %s::bigint, %s::text)

-- name: finish_items
SELECT {schema}.finish_items(%s::text, %s::text[], %s::bigint[], %s::text, %s::boolean)

-- name: item_audit
SELECT key, node, fence, state, claimed_at, ended_at
FROM {schema}.item_audit(%s::text, %s::text, %s::int, %s::text)

-- name: incomplete_items
SELECT key, node, fence, claimed_at, is_held
FROM {schema}.incomplete_items(%s::text, %s::text, make_interval(secs => %s::float8))

-- name: prune_items
SELECT {schema}.prune_items(make_interval(secs => %s))

-- name: pin
SELECT {schema}.pin(
  %s::text, %s::jsonb, created_by => %s::text, expires_in => make_interval(secs => %s::float8),
  append => %s::boolean)

-- name: clear_pins
SELECT {schema}.clear_pins(%s::text, key => %s::text, created_by => %s::text)

-- name: pins
SELECT key, token, patterns, owner, has_match, reason, created_by, created_at, expires_at
FROM {schema}.pin_list(%s::text, key => %s::text, created_by => %s::text, max => %s::int)

-- name: groups
SELECT
  name, total, hash, min_nodes, handover_timeout, version, leader, term, members, others, queues,
  owned, moving, largest, smallest, pins, pins_without_match, waits_for
FROM {schema}.group_list(%s::text)

-- name: token_owners
SELECT node, epoch, tokens, pins, leaving, arriving FROM {schema}.token_owners(%s::text)

-- name: token_ranges
SELECT first, last, owner, next FROM {schema}.token_ranges(%s::text)

-- name: rebalances
SELECT at, reason, leader, nodes_before, nodes_after, moved, version, duration
FROM {schema}.rebalance_list(%s::text, %s::int)

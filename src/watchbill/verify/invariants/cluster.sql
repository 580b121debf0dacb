-- Invariants of token groups, pins, locks and items.

-- name: token_moves_elsewhere
-- kind: S
-- says: a token never moves to its own owner
SELECT 'token ' || t.token || ' of group ' || t.token_group, 'it moves to its own owner'
FROM {schema}.tokens t
WHERE t.next = t.epoch

-- name: moving_token_knows_since_when
-- kind: S
-- says: a token that moves knows since when
SELECT
  'token ' || t.token || ' of group ' || t.token_group,
  format('it moves to %s since %s', t.next, t.asked_at)
FROM {schema}.tokens t
WHERE (t.next IS NULL) <> (t.asked_at IS NULL)

-- name: group_has_all_tokens
-- kind: S
-- says: a group that has tokens has all of them
SELECT
  'group ' || g.name, format('%s of its %s tokens are missing', g.total - t.number, g.total)
FROM {schema}.token_groups g
CROSS JOIN LATERAL (
  SELECT count(*) AS number
  FROM {schema}.tokens x
  WHERE x.token_group = g.name
    AND x.token < g.total) t
WHERE t.number NOT IN (0, g.total)

-- name: owner_lives
-- kind: E
-- says: the owner of a token lives while the group has a leader
SELECT
  'group ' || o.token_group, format('%s of its tokens belong to epoch %s, which does not live',
    o.number, o.epoch), NULL
FROM (
  SELECT t.token_group, t.epoch, count(*) AS number
  FROM {schema}.tokens t
  WHERE t.epoch <> 0
  GROUP BY 1, 2) o
WHERE NOT EXISTS (SELECT FROM {schema}.beats b WHERE b.epoch = o.epoch)
  AND EXISTS (
    SELECT
    FROM {schema}.locks l
    JOIN {schema}.beats b USING (epoch)
    WHERE l.name = 'leader/' || o.token_group
      AND l.holder IS NOT NULL)

-- name: next_owner_lives
-- kind: E
-- says: a token moves to a node that lives, while the group has a leader
SELECT
  'group ' || o.token_group,
  format('%s of its tokens move to epoch %s, which does not live', o.number, o.next), NULL
FROM (
  SELECT t.token_group, t.next, count(*) AS number
  FROM {schema}.tokens t
  WHERE t.next <> 0
  GROUP BY 1, 2) o
WHERE NOT EXISTS (SELECT FROM {schema}.beats b WHERE b.epoch = o.next)
  AND EXISTS (
    SELECT
    FROM {schema}.locks l
    JOIN {schema}.beats b USING (epoch)
    WHERE l.name = 'leader/' || o.token_group
      AND l.holder IS NOT NULL)

-- name: token_moves_in_time
-- kind: E
-- says: a token has moved a minute after the time for a hand-over, while the group has a leader
SELECT
  'token ' || t.token || ' of group ' || t.token_group,
  format('it moves to epoch %s since %s', t.next, t.asked_at), t.xmin::text || t.ctid
FROM {schema}.tokens t
JOIN {schema}.token_groups g ON g.name = t.token_group
WHERE t.asked_at < {schema}.now() - g.handover_timeout - interval '1 minute'
  AND EXISTS (
    SELECT
    FROM {schema}.locks l
    JOIN {schema}.beats b USING (epoch)
    WHERE l.name = 'leader/' || g.name
      AND l.holder IS NOT NULL)

-- name: pin_has_token
-- kind: S
-- says: a pin has a token of its own
SELECT 'pin ' || p.key || ' of group ' || p.token_group, format('token %s is not its own', p.token)
FROM {schema}.pins p
JOIN {schema}.token_groups g ON g.name = p.token_group
LEFT JOIN {schema}.tokens t USING (token_group, token)
WHERE t.token IS NULL
  OR t.token < g.total

-- name: extra_token_has_pin
-- kind: S
-- says: a token beyond the total is that of a pin
SELECT 'token ' || t.token || ' of group ' || t.token_group, 'it is that of no pin'
FROM {schema}.tokens t
JOIN {schema}.token_groups g ON g.name = t.token_group
WHERE t.token >= g.total
  AND NOT EXISTS (
    SELECT
    FROM {schema}.pins p
    WHERE (p.token_group, p.token) = (t.token_group, t.token))

-- name: pin_ranks_have_no_gaps
-- kind: E
-- says: the pins of a key have the ranks 1, 2 and so on
SELECT
  'pin ' || p.key || ' of group ' || p.token_group,
  format('its ranks are %s', array_agg(p.rank ORDER BY p.rank)), NULL
FROM {schema}.pins p
GROUP BY p.token_group, p.key
HAVING max(p.rank) <> count(*)

-- name: lock_fence_was_drawn
-- kind: S
-- says: no fence of a lock is larger than the last one that was drawn
SELECT 'lock ' || l.name, format('fence %s was never drawn', l.fence)
FROM {schema}.locks l
WHERE l.fence > (
  SELECT ((i.generation + {schema}._server_timeline())::bigint << 40) + s.last_value
  FROM {schema}.installation i
  CROSS JOIN {schema}.fence_seq s)

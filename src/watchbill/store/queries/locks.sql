-- These statements are about named locks and leaders.

-- name: acquire_lock
SELECT fence, held_by, expires_in
FROM {schema}._acquire_lock(
  %s::text, make_interval(secs => %s), %s::text, NULL, %s::uuid, %s::boolean)

-- name: renew_lock
SELECT {schema}.lock_renew(%s::text, %s::bigint, make_interval(secs => %s))

-- name: release_lock
SELECT {schema}.lock_release(%s::text, %s::bigint)

-- name: release_request
-- After an acquire was interrupted, releases the lock if this request was granted after all.
SELECT {schema}.lock_release(l.name, l.fence)
FROM {schema}.locks l
WHERE l.name = %s::text
  AND l.request = %s::uuid

-- name: check_lock
-- Runs on the user's own connection, through any driver.
SELECT {schema}.lock_check(%s::text, %s::bigint)

-- name: lock_channel
SELECT {schema}._name_lock_channel()

-- name: locks
SELECT name, state, holder, fence, epoch, acquired_at, expires_at, released_at
FROM {schema}.lock
WHERE (%s::boolean OR state <> 'free')
  AND name = coalesce(%s::text, name)
ORDER BY name
LIMIT 1000

-- name: leaders
SELECT substr(l.name, 8), n.name, l.epoch, l.fence, l.acquired_at, l.expires_at
FROM {schema}.lock l
JOIN {schema}.nodes n USING (epoch)
WHERE starts_with(l.name, 'leader/')
  AND l.state = 'held'
  AND l.name = coalesce('leader/' || %s::text, l.name)
ORDER BY l.name
LIMIT 1000

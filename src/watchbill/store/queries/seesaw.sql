-- These statements are for watchbill.compat.seesaw, a job store. Its workers do not run the chores
-- of a node, so a claim also renews the worker's lease and makes due jobs ready.

-- name: seesaw_register
SELECT {schema}.register(
  %s::text, lease => make_interval(secs => %s::float8), app => %s::text, labels => %s::jsonb,
  host => %s::text, pid => %s::int, watchbill_version => %s::text, queues => %s::text[])

-- name: seesaw_claim
-- The term `0 * b.beat` makes PostgreSQL call heartbeat() first.
SELECT c.id, c.fence, c.type, c.payload, c.version, c.attempt, c.meta
FROM (
  SELECT coalesce(cardinality({schema}.heartbeat(%(epoch)s::bigint)), 0) AS beat) b
CROSS JOIN LATERAL {schema}._claim_for_session(
  %(epoch)s::bigint + 0 * b.beat, %(queue)s::text, %(limit)s::int) c
ORDER BY c.priority DESC, c.run_at, c.id

-- name: seesaw_beat
SELECT {schema}.heartbeat(%s::bigint)

-- name: seesaw_settle
SELECT id, state
FROM {schema}.settle(
  %s::bigint, %s::uuid[], %s::bigint[], outcomes => %s::text[], ages => %s::float8[],
  errors => %s::jsonb[], closed => %s::bigint[])

-- name: seesaw_settle_one
SELECT id, state
FROM {schema}.settle(
  %s::bigint, ARRAY[%s::uuid], ARRAY[%s::bigint], ages => ARRAY[%s::float8],
  closed => %s::bigint[])

-- name: seesaw_unblock
SELECT id, state FROM {schema}.unblock(%s::uuid[])

-- name: seesaw_reclaim
WITH expired AS MATERIALIZED (
  SELECT array_agg(b.epoch) AS epochs, array_agg(b.n) AS beats
  FROM {schema}.beats b
  JOIN {schema}.nodes n USING (epoch)
  WHERE n.app = %s::text
    AND b.at < {schema}._clock() - n.lease)
SELECT count(r.id)
FROM expired e
CROSS JOIN LATERAL {schema}.reclaim(coalesce(e.epochs, '{{}}'), coalesce(e.beats, '{{}}')) r

-- name: seesaw_expire
-- Ends jobs that a worker of Watchbill has set aside in this queue: there, the setting
-- unknown_type_grace is 0.
SELECT {schema}.expire_unsupported('0', queue => %s::text)

-- name: seesaw_purge
SELECT {schema}.purge(
  ARRAY['succeeded'], queue => %s::text, max => 5000, finished_before => %s::timestamptz)

-- name: seesaw_stats
SELECT
  coalesce(sum(s.count) FILTER (WHERE s.state IN ('queued', 'blocked', 'suspended', 'failed')), 0),
  coalesce(sum(s.count) FILTER (WHERE s.state = 'running'), 0),
  coalesce(sum(s.count) FILTER (WHERE s.state = 'succeeded'), 0),
  coalesce(sum(s.count) FILTER (WHERE s.state = 'canceled'), 0),
  coalesce(sum(s.count) FILTER (WHERE s.state = 'dead'), 0)
FROM {schema}.stats(since => NULL) s
WHERE s.queue = %s::text

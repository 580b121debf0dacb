-- What a worker says.

-- name: register
SELECT {schema}.register(%(name)s, lease => make_interval(secs => %(lease)s), app => %(app)s, types => %(types)s::jsonb, labels => %(labels)s::jsonb,
  host => %(host)s, pid => %(pid)s, instance => %(instance)s, watchbill_version => %(watchbill_version)s)

-- name: heartbeat
SELECT {schema}.heartbeat(%s::bigint, %s::jsonb)

-- name: stop_requests
SELECT {schema}.stop_requests(%s::bigint)

-- name: leave
SELECT {schema}.leave(%s::bigint)

-- name: abandon
SELECT {schema}.abandon(%s::bigint, %s::bigint[])

-- name: claim
-- The last column: how many entries of the index it has read. `before` is read before it because the claim depends on it.
SELECT c.id, fence, type, payload, queue, tenant, priority, run_at, run, attempt, max_attempts, version, timeout, meta, {schema}.ready_entries_read() - b.before
FROM (SELECT {schema}.ready_entries_read() AS before) b
  CROSS JOIN LATERAL {schema}.claim(%s::bigint + 0 * b.before, %s::text[], %s::int, %s::int, %s::boolean) c

-- name: claim_above
SELECT id, fence, type, payload, queue, tenant, priority, run_at, run, attempt, max_attempts, version, timeout, meta, 0::bigint
FROM {schema}.claim(%s::bigint, %s::text[], %s::int, %s::int, false,
  floor_queues => %s::text[], floor_priorities => %s::smallint[], floor_times => %s::timestamptz[], floor_ids => %s::uuid[])

-- name: claim_others
SELECT id, fence, type, payload, queue, tenant, priority, run_at, run, attempt, max_attempts, version, timeout, meta, 0::bigint
FROM {schema}.claim(%s::bigint, %s::text[], %s::int, %s::int, false, without => %s::text[])

-- name: surroundings
SELECT {schema}.clock(), (SELECT count(*) FROM {schema}.nodes n WHERE n.state IN ('active', 'draining'))

-- name: settle_succeeded
SELECT id, state FROM {schema}.settle(%s::bigint, %s::uuid[], %s::bigint[], ages => %s::float8[], results => %s::jsonb[], closed => %s::bigint[])

-- name: settle
SELECT id, state, extract(epoch FROM run_at - {schema}.clock())::float8 FROM {schema}.settle(%s::bigint, %s::uuid[], %s::bigint[], %s::text[], %s::float8[], %s::interval[],
  results => %s::jsonb[], errors => %s::jsonb[], closed => %s::bigint[])

-- name: settled_by
-- After a lost reply: which of these did this claim end after all, for good or for another run? And who waits for that?
WITH ended AS MATERIALIZED (SELECT i.id, i.fence FROM unnest(%s::uuid[], %s::bigint[]) i(id, fence))
SELECT f.id, ARRAY(SELECT d.child FROM {schema}.dependencies d WHERE d.parent = f.id LIMIT 1000) FROM ended i JOIN {schema}.finished_jobs f ON f.id = i.id AND f.fence = i.fence WHERE f.finished_at >= clock_timestamp() - interval '1 hour'
UNION ALL
SELECT a.job_id, NULL FROM ended i JOIN {schema}.attempts a ON a.job_id = i.id AND a.fence = i.fence
WHERE a.ended_at >= clock_timestamp() - interval '1 hour' AND a.outcome IN ('failed', 'timed_out', 'snoozed')

-- name: kept_locked
SELECT k FROM {schema}.kept_locked(%s::uuid[]) k

-- name: unblock
SELECT id, state FROM {schema}.unblock(%s::uuid[])

-- name: unblock_any
SELECT id, state FROM {schema}.unblock(since => {schema}.clock() - make_interval(secs => %s))

-- name: sweep_dependencies
SELECT {schema}.sweep_dependencies(%s::uuid)

-- name: promote
SELECT extract(epoch FROM {schema}.promote(%s::int, {schema}.clock() - make_interval(secs => %s)) - {schema}.clock())::float8

-- name: beats
SELECT b.epoch, b.n, extract(epoch FROM n.lease)::float8, extract(epoch FROM {schema}.clock() - b.at)::float8
FROM {schema}.beats b JOIN {schema}.nodes n USING (epoch)

-- name: reclaim
SELECT id, epoch, state FROM {schema}.reclaim(%s::bigint[], %s::bigint[])

-- name: namesake
SELECT n.epoch, b.n, n.pid, n.labels->>'machine', n.instance FROM {schema}.nodes n JOIN {schema}.beats b USING (epoch) WHERE n.name = %s

-- name: bury
SELECT {schema}.bury(%s::bigint, %s::bigint)

-- name: expire_unsupported
SELECT {schema}.expire_unsupported(make_interval(secs => %s))

-- name: unpark_paused
SELECT {schema}.unpark_paused()

-- name: make_partitions
SELECT {schema}.make_partitions(parents => ARRAY[%s])

-- name: sweep_claims
SELECT {schema}.sweep_claims()

-- name: known_jobs
-- Which of these jobs are kept, finished or not: one snapshot, so that none is missed on its way from one to the other.
SELECT id FROM unnest(%s::uuid[]) given(id) WHERE {schema}.seq_of(id) IS NOT NULL

-- name: doorbell
SELECT {schema}.wake_key(), {schema}.wake_channel()

-- name: porter
-- Whether some worker sleeps with the lock of the doorbell: two numbers, of which pg_locks shows the second unsigned.
SELECT EXISTS (SELECT FROM pg_locks l WHERE l.locktype = 'advisory' AND l.mode = 'ExclusiveLock' AND l.granted AND l.objsubid = 2
  AND l.classid = %s::bigint::oid AND l.objid = (%s::bigint & 4294967295)::oid
  AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))

-- name: guard
-- This and complete go through the user's own connection: as enqueue_here, they ask for nothing that a driver could read in its own way.
SELECT {schema}.guard(%s::text::uuid, %s::bigint)

-- name: complete
SELECT {schema}.complete(%s::text::uuid, %s::bigint, %s::text::jsonb, %s::float8)

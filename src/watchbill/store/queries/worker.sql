-- Statements of a worker.

-- name: register
SELECT {schema}.register(
  %(name)s::text, lease => make_interval(secs => %(lease)s::float8), app => %(app)s::text,
  types => %(types)s::jsonb, labels => %(labels)s::jsonb, host => %(host)s::text,
  pid => %(pid)s::int, instance => %(instance)s::uuid,
  watchbill_version => %(watchbill_version)s::text, queues => %(queues)s::text[],
  machine => %(machine)s::text, capacity => %(capacity)s::int, take_over => %(take_over)s::boolean)

-- name: extend_node
SELECT {schema}.extend_node(%s::bigint, %s::jsonb, %s::text[])

-- name: heartbeat
SELECT
  {schema}.heartbeat(%s::bigint, %s::jsonb, %s::bigint),
  extract(epoch FROM {schema}._clock())::float8

-- name: heartbeat_with_tally
SELECT
  {schema}.heartbeat(%s::bigint, %s::jsonb, %s::bigint),
  extract(epoch FROM {schema}._clock())::float8,
  {schema}._report_tally(%s::bigint, %s::bigint, %s::jsonb)

-- name: report_tally
SELECT {schema}._report_tally(%s::bigint, %s::bigint, %s::jsonb)

-- name: observe
SELECT {schema}._observe()

-- name: stop_requests
-- Also returns the runs that somebody looks at: with true.
WITH given AS MATERIALIZED (
  SELECT %s::bigint AS epoch, %s::uuid[] AS ids, %s::bigint[] AS fences)
SELECT s.id, s.fence, false
FROM given g
CROSS JOIN LATERAL {schema}.stop_requests(g.epoch, g.ids, g.fences) s
UNION ALL
SELECT w, NULL, true
FROM given g
CROSS JOIN LATERAL {schema}._watched_jobs(g.ids) w

-- name: show_runs
SELECT {schema}._show_runs(%s::bigint, %s::jsonb)

-- name: leave
SELECT {schema}.leave(%s::bigint)

-- name: release_unknown
SELECT {schema}.release_unknown(%s::bigint, %s::bigint[])

-- name: claim
-- The difference of the two counts is how many entries of the ready index the claim has read.
-- `0 * b.before` makes the claim depend on the first count, so that PostgreSQL has to take that
-- before it calls claim.
SELECT
  c.id, fence, type, payload, queue, tenant, priority, run_at, run, attempt, max_attempts, version,
  timeout, meta, {schema}._count_ready_entries_read() - b.before, turn,
  limit_keys IS NOT NULL
FROM (SELECT {schema}._count_ready_entries_read() AS before) b
CROSS JOIN LATERAL {schema}.claim(
  %s::bigint + 0 * b.before, %s::text[], %s::int, %s::int, %s::boolean) c

-- name: claim_above
SELECT
  id, fence, type, payload, queue, tenant, priority, run_at, run, attempt, max_attempts, version,
  timeout, meta, 0::bigint, turn, limit_keys IS NOT NULL
FROM {schema}.claim(
  %s::bigint, %s::text[], %s::int, %s::int, false, floor_queues => %s::text[],
  floor_priorities => %s::smallint[], floor_times => %s::timestamptz[], floor_ids => %s::uuid[])

-- name: claim_other_types
SELECT
  id, fence, type, payload, queue, tenant, priority, run_at, run, attempt, max_attempts, version,
  timeout, meta, 0::bigint, turn, limit_keys IS NOT NULL
FROM {schema}.claim(%s::bigint, %s::text[], %s::int, %s::int, false, without => %s::text[])

-- name: server_time_and_nodes
SELECT
  {schema}._clock(),
  (SELECT count(*) FROM {schema}.nodes n WHERE n.state IN ('active', 'draining'))

-- name: settle_succeeded
SELECT id, state
FROM {schema}.settle(
  %s::bigint, %s::uuid[], %s::bigint[], ages => %s::float8[], results => %s::jsonb[],
  closed => %s::bigint[])

-- name: settle
SELECT id, state, extract(epoch FROM run_at - {schema}._clock())::float8
FROM {schema}.settle(
  %s::bigint, %s::uuid[], %s::bigint[], %s::text[], %s::float8[], %s::interval[],
  results => %s::jsonb[], errors => %s::jsonb[], closed => %s::bigint[])

-- name: settle_with_logs
-- `0 * l.stored` makes PostgreSQL store the lines before it settles.
SELECT id, state, extract(epoch FROM run_at - {schema}._clock())::float8
FROM (SELECT {schema}._store_logs(%s::uuid[], %s::bigint[], %s::text[]) AS stored) l
CROSS JOIN LATERAL {schema}.settle(
  %s::bigint + 0 * l.stored, %s::uuid[], %s::bigint[], %s::text[], %s::float8[], %s::interval[],
  results => %s::jsonb[], errors => %s::jsonb[], closed => %s::bigint[])

-- name: settled_runs
-- After a lost reply: which of these runs were settled, and which jobs wait for them.
WITH ended AS MATERIALIZED (
  SELECT i.id, i.fence FROM unnest(%s::uuid[], %s::bigint[]) i(id, fence))
SELECT f.id, ARRAY(
    SELECT d.child
    FROM {schema}.dependencies d
    WHERE d.parent = f.id
      AND d.tenant = f.tenant
    LIMIT 1000)
FROM ended i
JOIN {schema}.finished_jobs f ON f.id = i.id AND f.fence = i.fence
WHERE f.finished_at >= clock_timestamp() - interval '1 hour'
UNION ALL
SELECT a.job_id, NULL
FROM ended i
JOIN {schema}.attempts a ON a.job_id = i.id AND a.fence = i.fence
WHERE a.ended_at >= clock_timestamp() - interval '1 hour'
  AND a.outcome IN ('failed', 'timed_out', 'snoozed')

-- name: save_steps
SELECT place
FROM {schema}.save_steps(
  %s::uuid[], %s::bigint[], %s::text[], %s::text[], %s::text[], %s::bigint[], %s::bigint[],
  %s::bigint[], %s::bigint[], ages => %s::float8[], delays => %s::interval[],
  wake_ats => %s::timestamptz[], results => %s::jsonb[], errors => %s::jsonb[],
  undos => %s::boolean[])

-- name: save_result
SELECT
  {schema}._save_result(
    %s::uuid, %s::bigint, %s::text, %s::int, %s::int, %s::bigint, %s::float8, %s::boolean,
    %s::jsonb)

-- name: restart_job
SELECT {schema}.restart(%s::uuid, %s::bigint, %s::jsonb)

-- name: clock_of_steps
SELECT {schema}._clock()

-- name: load_steps
SELECT id, name, kind, state, seq, version, tries, digest, remaining, result, error, has_undo
FROM {schema}.load_steps(%s::uuid[])

-- name: save_step
SELECT
  {schema}.save_step(
    %s::uuid, %s::bigint, %s::text, %s::jsonb, %s::int, %s::int, %s::int, %s::bigint,
    %s::float8, %s::boolean)

-- name: await_jobs
SELECT
  {schema}.await_jobs(
    %s::uuid, %s::bigint, %s::text, %s::int, %s::uuid[], %s::boolean, %s::bigint)

-- name: collect_jobs
SELECT state, result FROM {schema}.collect_jobs(%s::uuid, %s::bigint, %s::text, %s::int)

-- name: receive_signal
SELECT state, result
FROM {schema}.receive(
  %s::uuid, %s::bigint, %s::text, %s::int, %s::text[], %s::jsonb, %s::interval)

-- name: locked_jobs
SELECT k FROM {schema}.locked_jobs(%s::uuid[]) k

-- name: unblock
SELECT id, state FROM {schema}.unblock(%s::uuid[])

-- name: unblock_any
SELECT id, state FROM {schema}.unblock(since => {schema}._clock() - make_interval(secs => %s))

-- name: sweep_dependencies
SELECT {schema}.sweep_dependencies(%s::uuid)

-- name: sweep_steps
SELECT {schema}.sweep_steps(%s::uuid)

-- name: refresh_quotas
SELECT {schema}.refresh_quotas()

-- name: sweep_limits
SELECT {schema}.sweep_limits(%s::text)

-- name: promote
-- Seconds until the next job is due, and the time of the database in seconds since 1970. `promote`
-- is in the FROM clause, so that the time is read after it.
SELECT
  extract(epoch FROM p.due - {schema}._clock())::float8,
  extract(epoch FROM {schema}._clock())::float8
FROM {schema}.promote(%s::int, {schema}._clock() - make_interval(secs => %s)) p(due)

-- name: survey
SELECT
  epochs, beats, leases, ages, fences, has_leftover_claim, next_delayed_in, has_dependency_check,
  has_ready_job, has_sleeping_worker, has_stale_declaration, has_unpaused_job, has_freed_schedule,
  has_unsupported_job, has_claim, has_dependency, has_step, has_parked_job, has_quota,
  has_due_observation, groups, leaders, terms, leaders_expire_in, turns_in, has_operation,
  has_due_delivery
FROM {schema}._survey(
  %s::bigint, %s::text[], {schema}._clock() - make_interval(secs => %s), %s::boolean)

-- name: declare_lost
SELECT n.name, n.host, n.pid, n.lease
FROM {schema}._declare_lost(%s::bigint[], %s::bigint[]) lost(epoch)
JOIN {schema}.nodes n USING (epoch)

-- name: reclaim
SELECT r.id, n.name, r.state
FROM {schema}.reclaim(%s::bigint[], %s::bigint[]) r
JOIN {schema}.nodes n USING (epoch)

-- name: node_by_name
SELECT n.epoch, b.n, n.pid, n.machine, n.instance
FROM {schema}.nodes n
JOIN {schema}.beats b USING (epoch)
WHERE n.name = %s

-- name: expire_node
SELECT {schema}.expire_node(%s::bigint, %s::bigint)

-- name: expire_unsupported
SELECT {schema}.expire_unsupported(make_interval(secs => %s))

-- name: unpark_paused
SELECT {schema}.unpark_paused()

-- name: make_partitions
SELECT {schema}.make_partitions(parents => ARRAY[%s])

-- name: prune_history
SELECT done, more, locked
FROM {schema}.prune_history(%s, make_interval(secs => %s), detach => %s)

-- name: list_detached_days
SELECT name, parent, pages FROM {schema}._list_detached_days()

-- name: read_detached_day
SELECT {schema}._read_detached_day(%s, %s::bigint, %s::int)

-- name: end_archive
SELECT {schema}._end_archive(%s, %s, %s::bigint, %s::bigint, %s)

-- name: is_archiving
SELECT {schema}._is_archiving()

-- name: run_operations
SELECT {schema}.run_operations()

-- name: begin_verification
SELECT {schema}._begin_verification(%s)

-- name: end_verification
SELECT {schema}._end_verification(%s::float8, %s::text)

-- name: claim_alert_deliveries
SELECT id, tries, route, kind, target, secret, event, message::text
FROM {schema}._claim_alert_deliveries(%s::text[])

-- name: end_alert_delivery
SELECT {schema}._end_alert_delivery(%s::uuid, %s::int, %s::text, %s::boolean)

-- name: find_next_delivery
SELECT {schema}._find_next_delivery(%s::text[])

-- name: prune_operations
SELECT {schema}.prune_operations()

-- name: prune_web
SELECT {schema}.prune_web()

-- name: prune_audit
SELECT {schema}.prune_audit(make_interval(secs => %s))

-- name: prune_nodes
SELECT {schema}.prune_nodes(make_interval(secs => %s))

-- name: prune_keys
SELECT {schema}.prune_keys()

-- name: preview_retention
SELECT what, action, row_count, bytes
FROM {schema}.preview_retention(
  make_interval(secs => %s), make_interval(secs => %s), make_interval(secs => %s),
  make_interval(secs => %s))

-- name: prune_locks
SELECT {schema}.prune_locks()

-- name: elect
SELECT group_name, leader, term, expires_in, turn_in
FROM {schema}.elect(%s::bigint, %s::text[])

-- name: withdraw
SELECT {schema}._withdraw_candidate(%s::bigint)

-- name: resign
SELECT {schema}.lock_release('leader/' || %s::text, %s::bigint)

-- name: sweep_claims
SELECT {schema}.sweep_claims()

-- name: known_jobs
-- Which of these jobs are kept. One snapshot for both tables: a job that finishes meanwhile is not
-- missed.
SELECT id FROM unnest(%s::uuid[]) given(id) WHERE {schema}._job_seq(id) IS NOT NULL

-- name: wake_key_and_channel
SELECT {schema}._wake_lock_key(), {schema}._wake_channel()

-- name: has_sleeping_worker
SELECT {schema}._has_sleeping_worker()

-- name: announce_awake
SELECT pg_notify({schema}._wake_channel(), 'awake')

-- name: guard
-- This and complete use the user's own connection, through any driver, as enqueue_here.
SELECT {schema}.guard(%s::text::uuid, %s::bigint)

-- name: set_artifact
SELECT {schema}._set_artifacts(
  ARRAY[%s::text::uuid], ARRAY[%s::bigint], ARRAY[%s::text])

-- name: complete
-- A lock_timeout is given if this is the last statement of the transaction.
SELECT
  set_config('lock_timeout', coalesce(%s::text, current_setting('lock_timeout')), true),
  {schema}.complete(%s::text::uuid, %s::bigint, %s::text::jsonb, %s::float8)

-- name: guard_many
-- In the order of ids, so that two batches that share jobs cannot deadlock.
SELECT {schema}.guard(i.id, i.fence)
FROM (
  SELECT *
  FROM jsonb_to_recordset(%s::text::jsonb) j(id uuid, fence bigint)
  ORDER BY j.id) i

-- name: complete_many
SELECT
  set_config('lock_timeout', coalesce(%s::text, current_setting('lock_timeout')), true),
  {schema}.complete(i.id, i.fence, i.result, i.age)
FROM (
  SELECT *
  FROM jsonb_to_recordset(%s::text::jsonb) j(id uuid, fence bigint, result jsonb, age float8)
  ORDER BY j.id) i

-- name: read_endpoint
SELECT kind, base_url, headers, auth, hosts, timeout, is_failing, disabled_reason
FROM {schema}._read_endpoint(%s::text, %s::text)

-- name: keep_notification
SELECT {schema}._keep_notification(%s::uuid, %s::bigint, %s::uuid, %s::timestamptz, %s::jsonb)

-- name: report_endpoint
SELECT {schema}._report_endpoint(%s::text, %s::text, %s::text)

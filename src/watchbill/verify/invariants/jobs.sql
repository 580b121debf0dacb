-- Invariants of unfinished jobs. `x` is the row that a look is about, and {part} says which rows it
-- looks at.

-- name: in_one_place
-- kind: S
-- scans: jobs by id
-- says: a job is in jobs or in history, not in both
SELECT 'job ' || x.id, 'history has it too, as ' || f.state
FROM {table} x
JOIN {schema}.finished_jobs f
  ON f.id = x.id AND f.tenant = x.tenant AND f.finished_at >= x.created_at - interval '1 day'
WHERE {part}

-- name: fence_has_claim
-- kind: S
-- scans: jobs by id
-- says: the fence of a running job is that of a claim that names the job
SELECT 'job ' || x.id, format('fence %s is that of no claim that names the job', x.fence)
FROM {table} x
WHERE {part}
  AND x.fence <> 0
  AND NOT EXISTS (
    SELECT
    FROM {schema}.claims c
    WHERE c.fence = x.fence
      AND x.id = ANY (c.job_ids))

-- name: fence_was_drawn
-- kind: S
-- scans: jobs by id
-- says: no fence is larger than the last one that was drawn
SELECT 'job ' || x.id, format('fence %s was never drawn', x.fence)
FROM {table} x
WHERE {part}
  AND x.fence > (
    SELECT ((i.generation + {schema}._server_timeline())::bigint << 40) + s.last_value
    FROM {schema}.installation i
    CROSS JOIN {schema}.fence_seq s)

-- name: known_wait
-- kind: S
-- scans: jobs by id
-- says: what a job waits for is a known word
SELECT 'job ' || x.id, format('it waits for %L', x.wait)
FROM {table} x
WHERE {part}
  AND x.wait NOT IN ('delayed', 'waiting', 'blocked', 'paused', 'parked', 'unsupported')

-- name: wait_has_key
-- kind: S
-- scans: jobs by id
-- says: a job has a wait_key exactly while it waits for something that has one
SELECT
  'job ' || x.id, format('it waits for %L with the key %L', x.wait, x.wait_key)
FROM {table} x
WHERE {part}
  AND (x.wait_key IS NOT NULL)
    <> (x.wait IS NOT NULL AND x.wait IN ('paused', 'parked', 'unsupported'))
  AND NOT (
    x.wait IN ('delayed', 'waiting')
    AND x.wait_key IS NOT NULL
    AND x.wait_key = 'steps')

-- name: running_job_waits_for_nothing
-- kind: S
-- scans: jobs by id
-- says: a running job waits for nothing, though one that was unsupported keeps that word
SELECT 'job ' || x.id, format('it is claimed, and waits for %L', x.wait)
FROM {table} x
WHERE {part}
  AND x.fence <> 0
  AND x.wait <> 'unsupported'

-- name: suspended_job_has_steps
-- kind: S
-- scans: jobs by id
-- says: a suspended job has a step that waits
SELECT 'job ' || x.id, 'no step of it waits'
FROM {table} x
WHERE {part}
  AND x.wait IN ('delayed', 'waiting')
  AND x.wait_key = 'steps'
  AND NOT EXISTS (
    SELECT
    FROM {schema}.steps s
    WHERE s.job_id = x.id)

-- name: ready_job_is_due
-- kind: E
-- scans: jobs by id
-- says: a ready job is due
SELECT
  'job ' || x.id, 'it is ready, and due only at ' || x.run_at, x.xmin::text || x.ctid
FROM {table} x
WHERE {part}
  AND x.wait IS NULL
  AND x.fence = 0
  AND x.run_at > {schema}.now() + interval '1 minute'

-- name: delayed_job_is_promoted
-- kind: E
-- scans: jobs by id
-- says: a delayed job is made ready in time while a node lives
SELECT
  'job ' || x.id, 'it was due at ' || x.run_at || ', and is still delayed', x.xmin::text || x.ctid
FROM {table} x
WHERE {part}
  AND x.wait = 'delayed'
  AND x.fence = 0
  AND x.run_at < {schema}.now() - interval '1 minute'
  AND EXISTS (
    SELECT
    FROM {schema}.beats b
    JOIN {schema}.nodes n USING (epoch)
    WHERE n.state = 'active'
      AND b.at + n.lease > {schema}.now())

-- name: attempts_within_bound
-- kind: S
-- scans: jobs by id
-- says: a job has used at most the attempts that it may have
SELECT 'job ' || x.id, format('it has used %s of %s attempts', x.attempt, x.max_attempts)
FROM {table} x
WHERE {part}
  AND x.attempt NOT BETWEEN 0 AND x.max_attempts

-- name: single_attempt_is_not_claimed_ahead
-- kind: E
-- scans: jobs by id
-- says: a waiting job with one attempt has a class that is never claimed ahead of a free slot
SELECT
  'job ' || x.id, 'it has one attempt, and may be claimed ahead of a free handler slot',
  x.xmin::text || x.ctid
FROM {table} x
WHERE {part}
  AND x.max_attempts = 1
  AND x.class = 0
  AND x.fence = 0

-- name: known_policy
-- kind: S
-- scans: jobs by id
-- says: the policy of a job exists
SELECT 'job ' || x.id, format('there is no policy %s', x.policy)
FROM {table} x
WHERE {part}
  AND NOT EXISTS (SELECT FROM {schema}.policies p WHERE p.id = x.policy)

-- name: blocked_job_has_dependencies
-- kind: S
-- scans: jobs by id
-- says: a blocked job waits for other jobs
SELECT 'job ' || x.id, 'it is blocked, and depends on nothing'
FROM {table} x
WHERE {part}
  AND x.wait = 'blocked'
  AND NOT EXISTS (SELECT FROM {schema}.dependencies d WHERE d.child = x.id)

-- name: blocked_job_is_decided
-- kind: E
-- scans: jobs by id
-- says: a blocked job whose parents have all ended has a row of dependency_checks
SELECT
  'job ' || x.id, 'all jobs that it waits for have ended, and nothing will look at it',
  x.xmin::text || x.ctid
FROM {table} x
WHERE {part}
  AND x.wait = 'blocked'
  AND EXISTS (SELECT FROM {schema}.dependencies d WHERE d.child = x.id)
  AND NOT EXISTS (
    SELECT
    FROM {schema}.dependencies d
    WHERE d.child = x.id
      AND d.outcome IS NULL)
  AND NOT EXISTS (
    SELECT
    FROM {schema}.dependency_checks u
    WHERE u.id = x.id
      OR u.id IN (SELECT d.parent FROM {schema}.dependencies d WHERE d.child = x.id))

-- name: only_running_jobs_are_asked_to_stop
-- kind: S
-- scans: jobs by id
-- says: only a running job is asked to stop, or the last of a chain
SELECT 'job ' || x.id, 'it is asked to stop, and does not run'
FROM {table} x
WHERE {part}
  AND x.canceling
  AND x.fence = 0
  AND x.type <> 'watchbill.flow_end'

-- name: scheduled_job_has_slot
-- kind: S
-- scans: jobs by id
-- says: the job of a schedule has a slot
SELECT 'job ' || x.id, format('schedule %s has no slot of it', x.schedule_id)
FROM {table} x
WHERE {part}
  AND x.schedule_id IS NOT NULL
  AND NOT EXISTS (
    SELECT
    FROM {schema}.slots s
    WHERE s.job_id = x.id
      AND s.schedule_id = x.schedule_id)

-- name: unsupported_type_is_listed
-- kind: S
-- scans: jobs by id
-- says: a job that no node handles is listed by its type
SELECT
  'job ' || x.id,
  format('version %s of type %s is not in unsupported_types', x.version, x.type)
FROM {table} x
WHERE {part}
  AND x.wait = 'unsupported'
  AND NOT EXISTS (
    SELECT
    FROM {schema}.unsupported_types u
    WHERE (u.type, u.version) = (x.type, x.version))

-- name: running_job_holds_its_keys
-- kind: S
-- scans: jobs by id
-- says: a running job holds all its limit keys
SELECT 'job ' || x.id, format('it runs, and does not hold %s', k.key)
FROM {table} x
CROSS JOIN LATERAL unnest(x.limit_keys) k(key)
WHERE {part}
  AND x.fence <> 0
  AND NOT EXISTS (
    SELECT
    FROM {schema}.holds h
    WHERE h.key = k.key
      AND h.job_id = x.id)

-- name: lane_has_meaning
-- kind: E
-- scans: jobs by id
-- says: a lane above 0 is of a fair or routed queue, one below 0 names a row of label_sets
SELECT
  'job ' || x.id, format('lane %s of queue %s means nothing', x.lane, x.queue),
  x.xmin::text || x.ctid
FROM {table} x
WHERE {part}
  AND x.fence = 0
  AND x.wait IS NULL
  AND CASE
    WHEN x.lane > 0 THEN NOT EXISTS (
      SELECT
      FROM {schema}.queues q
      WHERE q.name = x.queue
        AND q.lanes <> 'none')
    WHEN x.lane < 0 THEN NOT EXISTS (
      SELECT
      FROM {schema}.label_sets l
      WHERE l.lane = x.lane)
    ELSE false
  END

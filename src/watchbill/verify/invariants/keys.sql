-- Invariants of limits: who holds a key, and who waits for one.

-- name: hold_has_job
-- kind: S
-- scans: holds by job_id
-- says: a hold is of a running job, an unfinished ordered one, or a dead one that keeps its key
SELECT
  'key ' || x.key, format('job %s holds it, and has no right to', x.job_id)
FROM {table} x
LEFT JOIN {schema}.jobs j ON j.id = x.job_id
WHERE {part}
  AND CASE
    WHEN j.id IS NULL THEN NOT EXISTS (
      SELECT
      FROM {schema}.finished_jobs f
      JOIN {schema}.limits l ON l.name = 'order:' || f.type AND l.when_dead = 'pause'
      WHERE f.id = x.job_id
        AND f.state = 'dead'
        AND f.order_key = x.key)
    WHEN j.fence = 0 THEN x.key IS DISTINCT FROM j.order_key
    WHEN starts_with(x.key, 'queue:') THEN x.key <> 'queue:' || j.queue
    ELSE x.key <> ALL (coalesce(j.limit_keys, '{{}}'))
  END

-- name: hold_has_state
-- kind: S
-- scans: holds by job_id
-- says: a key that a job holds has a row of limit_states
SELECT 'key ' || x.key, format('job %s holds it, and it has no state', x.job_id)
FROM {table} x
WHERE {part}
  AND NOT EXISTS (SELECT FROM {schema}.limit_states s WHERE s.key = x.key)

-- An operator may lower a limit below the number of jobs that run: these end first. So only jobs
-- count whose rows were written after the limit, as by their claim.
-- name: key_within_maximum
-- kind: E
-- says: of the jobs that were claimed since a limit was set, no more hold a key than it allows
SELECT
  'key ' || o.key, format('%s jobs hold it, and its limit is %s', o.number, o.max), o.version
FROM (
  SELECT h.key, m.max, count(*) AS number, max(j.fence)::text AS version
  FROM {schema}.holds h
  JOIN {schema}.limit_states s ON s.key = h.key
  JOIN (
    SELECT l.name, l.max, l.xmin AS set_by
    FROM {schema}.limits l
    UNION ALL
    SELECT 'queue:' || q.name, q.max, q.xmin
    FROM {schema}.queues q) m ON m.name = s.name
  JOIN {schema}.jobs j ON j.id = h.job_id
  WHERE m.max IS NOT NULL
    AND j.fence <> 0
    AND NOT j.canceling
    AND age(j.xmin) < age(m.set_by)
  GROUP BY h.key, m.max
  HAVING count(*) > m.max) o

-- name: ordered_key_has_one_hold
-- kind: S
-- scans: holds by job_id
-- says: an ordered key has one hold
SELECT 'key ' || x.key, format('jobs %s and %s hold it', x.job_id, h.job_id)
FROM {table} x
JOIN {schema}.holds h ON h.key = x.key AND h.job_id > x.job_id
WHERE {part}
  AND starts_with(x.key, 'order:')

-- name: waiting_job_has_full_key
-- kind: E
-- says: a job that waits for a key finds it full
SELECT
  'key ' || w.key, 'jobs wait for it, it has free places, and no job is about to take them', NULL
FROM (
  SELECT k.key, p.places, p.is_ordered, p.head
  FROM unnest({schema}._list_awaited_keys(200)) k(key)
  CROSS JOIN LATERAL unnest(
    {schema}._count_places(ARRAY[k.key], '{{}}', {schema}.now())) p) w
WHERE w.places > (
  SELECT count(*)
  FROM {schema}.jobs r
  WHERE r.fence = 0
    AND r.wait IS DISTINCT FROM 'parked'
    AND w.key = ANY (r.limit_keys))
  AND (
    NOT w.is_ordered
    OR EXISTS (
      SELECT
      FROM {schema}.jobs j
      WHERE j.id = w.head
        AND j.wait = 'parked'
        AND j.wait_key = w.key))

-- name: idempotent_job_exists
-- kind: E
-- scans: idempotency by job_id
-- says: the job that an idempotency key of the last day names exists
SELECT
  'job ' || x.job_id,
  format('the idempotency key %s of type %s names it, and it is nowhere', x.key, x.type),
  x.xmin::text || x.ctid
FROM {table} x
WHERE {part}
  AND x.created_at > {schema}.now() - interval '1 day'
  AND NOT EXISTS (SELECT FROM {schema}.jobs j WHERE j.id = x.job_id)
  AND NOT EXISTS (
    SELECT
    FROM {schema}.finished_jobs f
    WHERE f.id = x.job_id
      AND f.finished_at >= x.created_at - interval '1 day')

-- name: dependency_has_child
-- kind: S
-- scans: dependencies by child
-- says: the job that waits for another one exists
SELECT
  'job ' || x.child, format('it waits for job %s, and is nowhere', x.parent)
FROM {table} x
WHERE {part}
  AND x.outcome IS NULL
  AND NOT EXISTS (SELECT FROM {schema}.jobs j WHERE j.id = x.child)
  AND NOT EXISTS (SELECT FROM {schema}.finished_jobs f WHERE f.id = x.child)
